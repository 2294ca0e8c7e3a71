//! stub
/// x
pub const SCHEME: &str = "jcs-sha256/1";
/// x
pub fn redact(t: &str, _p: &[String]) -> String {
    t.to_string()
}
/// x
pub fn differing_pointers(_a: &str, _b: &str, _m: usize) -> Vec<String> {
    vec![]
}
/// x
#[derive(Default)]
pub struct Rules {
    /// x
    pub reject_fractions: bool,
}
/// x
pub fn check(_t: &str) -> Result<(), String> {
    Ok(())
}
/// x
pub fn request_hash(_t: &str, _r: Rules) -> Result<[u8; 32], String> {
    Ok([0; 32])
}
