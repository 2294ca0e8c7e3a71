//! The fingerprint of a request: SHA-256 over the canonical form (RFC 8785) of its JSON text.
//!
//! Two different requests must never hash equal, and one request must never hash two ways, in any
//! language. So this reader is stricter than most: it refuses duplicate member names, and numbers that
//! another reader could take for another number. It knows nobody but std, SHA-256 and the number writer;
//! texts go in, texts and hashes come out, and no message ever quotes what a text holds.
//!
//! Layout: `parse` reads a text into borrowed nodes, `number` judges number texts, `write` makes the
//! canonical form, `pointer` compares and blanks values by their place.

mod fault;
mod number;
mod parse;
mod pointer;
#[cfg(test)]
mod tests;
mod write;

pub use fault::{Fault, Kind};
pub use pointer::{differing_pointers, is_pointer, redact};

use sha2::{Digest, Sha256};

/// Names how a hash was made, so that a later way never changes the meaning of a stored hash.
pub const SCHEME: &str = "jcs-sha256/1";

/// The deepest nesting of arrays and objects that is accepted: what the usual readers take too.
pub const DEPTH_MAX: usize = 127;

/// What is refused beyond what every text must hold to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Refuse every number that is not an integer (`1.0` is one): for money in minor units.
    pub reject_fractions: bool,
    /// Refuse integral values beyond ±(2^53 − 1) however they are written, and numbers whose canonical
    /// text has another decimal value than the text that was sent. Only the RFC's own test vectors turn
    /// this off.
    pub strict_numbers: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { reject_fractions: false, strict_numbers: true }
    }
}

/// The canonical form of a JSON text.
///
/// # Errors
/// Where the text is no JSON, or could be read as two different values: says what, where, and what to
/// send instead.
pub fn canonicalize(text: &str, rules: Rules) -> Result<String, Fault> {
    parse::parse(text)
        .and_then(|node| write::canonical(text, &node, rules))
        .map_err(|error| error.locate(text))
}

/// Checks that a text is one well-formed JSON value by the rules of [`canonicalize`], except that
/// numbers may be any: for texts that are kept as they are.
///
/// # Errors
/// As [`canonicalize`].
pub fn check(text: &str) -> Result<(), Fault> {
    parse::parse(text).map(drop).map_err(|error| error.locate(text))
}

/// The hash of a request, given as JSON text.
///
/// # Errors
/// As [`canonicalize`].
pub fn request_hash(text: &str, rules: Rules) -> Result<[u8; 32], Fault> {
    canonicalize(text, rules).map(|canonical| hash(canonical.as_bytes()))
}

/// The hash of a canonical form.
#[must_use]
pub fn hash(canonical: &[u8]) -> [u8; 32] {
    Sha256::digest(canonical).into()
}

/// The hash of a canonical form, as 64 lower-case hexadecimal digits.
#[must_use]
pub fn hash_hex(canonical: &[u8]) -> String {
    to_hex(&hash(canonical))
}

/// A hash as 64 lower-case hexadecimal digits.
#[must_use]
pub fn to_hex(hash: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = hash.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.map(|nibble| char::from(DIGITS[usize::from(nibble)])).collect()
}
