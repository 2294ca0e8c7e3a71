//! What texts and numbers a caller may send. One place, so that every path checks the same.

use std::time::Duration;

/// The namespace of a caller who gave none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// Conflict events kept per operation; later ones are only counted.
pub const CONFLICT_EVENTS_KEPT: i32 = 100;
/// Claim ids remembered per operation: more than the attempts that a policy may allow.
pub const CLAIM_IDS_KEPT: usize = 1024;
/// Labels per operation.
pub const LABELS_MAX: usize = 32;
/// The shortest lease a caller may ask for.
pub const LEASE_MIN: Duration = Duration::from_millis(100);
/// The longest duration any field takes; longer ones are refused, not cut.
pub const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Why a text is refused: says what is allowed, never quotes the text.
pub type Fault = String;

/// Refuses all but 1 to 64 characters of `[a-z0-9._-]`.
///
/// # Errors
/// Says what is allowed.
pub fn namespace(text: &str) -> Result<(), Fault> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(allowed) {
        return Ok(());
    }
    Err("must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-' (or empty for \"default\")".into())
}

/// Refuses all but 1 to 80 characters of `[A-Za-z0-9_.:/-]`.
///
/// # Errors
/// Says what is allowed.
pub fn action_type(text: &str) -> Result<(), Fault> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    if (1..=80).contains(&text.len()) && text.chars().all(allowed) {
        return Ok(());
    }
    Err("must be 1 to 80 characters of A-Z, a-z, 0-9, '_', '.', ':', '/' and '-'".into())
}

/// Refuses an empty text, one of more than `max` characters, and control characters.
///
/// # Errors
/// Says what is allowed.
pub fn text(text: &str, max: usize) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(format!("must not be empty: send 1 to {max} characters"));
    }
    optional_text(text, max)
}

/// Refuses a text of more than `max` characters, and control characters. Empty is allowed.
///
/// # Errors
/// Says what is allowed.
pub fn optional_text(text: &str, max: usize) -> Result<(), Fault> {
    if text.len() > max && text.chars().count() > max {
        return Err(format!("is too long: at most {max} characters"));
    }
    if text.chars().any(is_unprintable) {
        return Err("must not contain control characters (such as NUL, newline or U+2028)".into());
    }
    Ok(())
}

/// Refuses an operation key that is not 1 to 200 printable characters, or that is blank at an end.
///
/// # Errors
/// Says what is allowed.
pub fn operation_key(key: &str) -> Result<(), Fault> {
    text(key, 200)?;
    if key.trim() != key {
        return Err("must not begin or end with white space: make it from non-empty parts".into());
    }
    if key.chars().any(is_deceptive) {
        return Err("must not contain invisible characters or changes of writing direction".into());
    }
    Ok(())
}

/// Refuses a message of more than 1000 characters or with control characters other than newline and tab.
///
/// # Errors
/// Says what is allowed.
pub fn error_message(text: &str) -> Result<(), Fault> {
    if text.len() > 1000 && text.chars().count() > 1000 {
        return Err("is too long: at most 1000 characters".into());
    }
    if text.chars().any(|c| is_unprintable(c) && c != '\n' && c != '\t') {
        return Err("must not contain control characters other than newline and tab".into());
    }
    Ok(())
}

/// Refuses a label name that is not 1 to 63 characters of `[A-Za-z0-9._/-]`.
///
/// # Errors
/// Says what is allowed.
pub fn label_name(text: &str) -> Result<(), Fault> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    if (1..=63).contains(&text.len()) && text.chars().all(allowed) {
        return Ok(());
    }
    Err("label names must be 1 to 63 characters of A-Z, a-z, 0-9, '.', '_', '/' and '-'".into())
}

/// Characters that make two different keys look alike, or one look like another: zero-width spaces and marks,
/// and the controls of the Unicode bidirectional algorithm.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Control characters, and the two line separators that some readers take for line ends.
fn is_unprintable(c: char) -> bool {
    c.is_control() || c == '\u{2028}' || c == '\u{2029}'
}
