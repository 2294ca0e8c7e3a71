//! stub
/// x
pub struct Metrics;
impl Metrics {
    /// x
    pub fn batch(&self, _: usize) {}
    /// x
    pub fn stale(&self) {}
    /// x
    pub fn store_error(&self, _: &crate::store::Error) {}
    /// x
    pub fn lease_expired(&self) {}
    /// x
    pub fn conflict_refused(&self) {}
    /// x
    pub fn outcome_conflict(&self) {}
}
