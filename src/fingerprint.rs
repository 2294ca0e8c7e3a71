//! stub
/// x
pub const SCHEME: &str = "jcs-sha256/1";
/// x
pub fn redact(t: &str, _p: &[String]) -> String {
    t.to_string()
}
