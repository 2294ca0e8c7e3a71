//! Leases and the tokens that prove them.

use super::timestamp::Timestamp;
use sha2::{Digest, Sha256};
use std::{fmt, time::Duration};

/// A time-limited, fenced permission to act.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lease {
    /// Who said to hold it (`worker_id`); a note for people, no proof.
    pub holder: String,
    /// When it was granted.
    pub claimed_at: Timestamp,
    /// It is over from here on.
    pub until: Timestamp,
    /// The duration it was granted with, in milliseconds: what an extension without one uses.
    pub duration_ms: i64,
    /// Nothing is sent before Dispatch was acknowledged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub two_step: bool,
}

impl Lease {
    /// True while the holder may act.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// [`Lease::duration_ms`] as a duration.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.duration_ms).unwrap_or(0))
    }
}

/// A checker's lease on an unknown operation: it keeps two checkers apart and permits nothing else.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckLease {
    /// Who said to hold it (`worker_id`); a note for people, no proof.
    pub holder: String,
    /// It is over from here on, and the check is due again.
    pub until: Timestamp,
    /// The duration it was granted with, in milliseconds: what an extension without one uses.
    pub duration_ms: i64,
}

impl CheckLease {
    /// True while the holder may ask.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// The text that proves a lease: `a<attempt>.<mac>`, or `c<check>.<mac>` for a checker's.
///
/// The mac is derived from the operation's secret and the number. So the token of every attempt ever
/// granted can be recognised without being kept, no token is ever granted twice, and none can be guessed.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseToken(String);

impl LeaseToken {
    /// The token of one attempt.
    #[must_use]
    pub fn for_attempt(secret: &[u8; 16], attempt: i32) -> Self {
        Self::derive(secret, b"opledger lease 1", 'a', attempt)
    }

    /// The token of one check.
    #[must_use]
    pub fn for_check(secret: &[u8; 16], check: i32) -> Self {
        Self::derive(secret, b"opledger check 1", 'c', check)
    }

    fn derive(secret: &[u8; 16], purpose: &[u8], letter: char, number: i32) -> Self {
        let mut digest = Sha256::new();
        digest.update(purpose);
        digest.update(secret);
        digest.update(number.to_be_bytes());
        let mac = digest.finalize();
        let mut text = format!("{letter}{number}.");
        push_hex(&mut text, &mac[..16]);
        Self(text)
    }

    /// A token as a caller sent it.
    #[must_use]
    pub fn from_caller(text: String) -> Self {
        Self(text)
    }

    /// The attempt that this token proves, or none where it was never granted for this operation.
    #[must_use]
    pub fn attempt(&self, secret: &[u8; 16], attempt_count: i32) -> Option<i32> {
        let attempt = self.number('a', attempt_count)?;
        self.equals(&Self::for_attempt(secret, attempt)).then_some(attempt)
    }

    /// The check that this token proves, or none where it was never granted for this operation.
    #[must_use]
    pub fn check(&self, secret: &[u8; 16], check_leases: i32) -> Option<i32> {
        let check = self.number('c', check_leases)?;
        self.equals(&Self::for_check(secret, check)).then_some(check)
    }

    fn number(&self, letter: char, max: i32) -> Option<i32> {
        let (number, _) = self.0.strip_prefix(letter)?.split_once('.')?;
        number.parse().ok().filter(|number| (1..=max).contains(number))
    }

    fn equals(&self, other: &Self) -> bool {
        equal_in_constant_time(self.0.as_bytes(), other.0.as_bytes())
    }

    /// The text to send to its holder, and to nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

// By hand: a token must not be printed.
impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(…)")
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_proves_its_attempt_and_no_other() {
        let secret = [7; 16];
        let token = LeaseToken::for_attempt(&secret, 2);
        assert_eq!(token.attempt(&secret, 2), Some(2));
        assert_eq!(token.attempt(&secret, 5), Some(2), "an earlier attempt stays provable");
        assert_eq!(token.attempt(&secret, 1), None, "not granted yet");
        assert_eq!(token.attempt(&[8; 16], 2), None, "another operation's");
        for text in ["", "a", "a2", "a2.", "a2.00", "a02.", "a-1.x", "c2.1", "a99999999999.1"] {
            assert_eq!(LeaseToken::from_caller(text.into()).attempt(&secret, 9), None, "{text}");
        }
        let padded = format!("a02.{}", token.expose().split_once('.').unwrap().1);
        assert_eq!(LeaseToken::from_caller(padded).attempt(&secret, 9), None, "one spelling only");
        assert_eq!(format!("{token:?}"), "LeaseToken(…)");
    }

    #[test]
    fn a_checkers_token_is_no_attempts() {
        let secret = [7; 16];
        let check = LeaseToken::for_check(&secret, 1);
        assert_eq!(check.check(&secret, 1), Some(1));
        assert_eq!(check.check(&secret, 0), None, "not granted yet");
        assert_eq!(check.attempt(&secret, 1), None);
        assert_eq!(LeaseToken::for_attempt(&secret, 1).check(&secret, 1), None);
        let renamed = check.expose().replacen('c', "a", 1);
        assert_eq!(LeaseToken::from_caller(renamed).attempt(&secret, 1), None);
    }
}
