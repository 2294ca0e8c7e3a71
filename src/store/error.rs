//! stub
/// x
#[derive(Debug)]
pub struct Error;
impl Error {
    /// x
    pub fn is_poison(&self) -> bool {
        false
    }
    /// x
    pub fn is_corrupt(&self) -> bool {
        false
    }
    /// x
    pub fn is_indeterminate(&self) -> bool {
        false
    }
    /// x
    pub fn is_retryable(&self) -> bool {
        false
    }
}
