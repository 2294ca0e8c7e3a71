//! STUB.
#![allow(missing_docs)]
pub struct Report;
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stub")
    }
}
pub async fn migrate(_: &str) -> Result<Report, super::Error> {
    Ok(Report)
}
