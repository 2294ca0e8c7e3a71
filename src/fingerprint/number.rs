//! Judges the text of a number, and writes it as ECMAScript would.

use super::{Rules, fault::Kind};

/// 2^53 − 1: up to here every integer has a double of its own.
const SAFE_MAX: f64 = 9_007_199_254_740_991.0;

/// Every decimal of so many digits comes back from a double as it was (DBL_DIG).
const EXACT_DIGITS: usize = 15;

/// Writes the canonical text of a number that RFC 8259 allows.
pub(super) fn write(out: &mut String, literal: &str, rules: Rules) -> Result<(), Kind> {
    // The usual case, without a look at the double.
    if is_plain(literal) && !(rules.reject_fractions && literal.contains('.')) {
        out.push_str(literal);
        return Ok(());
    }
    // std's reader rounds correctly, at any length.
    let value: f64 = literal.parse().map_err(|_| Kind::BadNumber)?;
    if !value.is_finite() {
        return Err(Kind::NumberTooLarge);
    }
    let mut buffer = ryu_js::Buffer::new();
    // Also for -0, which is 0.
    let canonical = if value == 0.0 { "0" } else { buffer.format_finite(value) };
    let decimal = Decimal::of(literal);
    if rules.strict_numbers {
        // Beyond 2^53 a double is always integral, so this needs no look at the fraction.
        if value.abs() > SAFE_MAX {
            return Err(Kind::UnsafeInteger);
        }
        if !decimal.equals(&Decimal::of(canonical)) {
            return Err(Kind::InexactNumber);
        }
    }
    if rules.reject_fractions && !decimal.is_integral() {
        return Err(Kind::Fraction);
    }
    out.push_str(canonical);
    Ok(())
}

/// True for short numbers that are written as the canonical form writes them: no exponent, no zero that
/// could be left out, not so small that it would have an exponent, and no -0.
fn is_plain(literal: &str) -> bool {
    let unsigned = literal.strip_prefix('-').unwrap_or(literal);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match unsigned.split_once('.') {
        None => unsigned.len() <= EXACT_DIGITS && digits(unsigned) && literal != "-0",
        Some((whole, fraction)) => {
            whole.len() + fraction.len() <= EXACT_DIGITS
                && digits(whole)
                && digits(fraction)
                && !fraction.ends_with('0')
                && (whole != "0" || !fraction.starts_with('0'))
        }
    }
}

/// True where two number texts have the same decimal value, at any length.
pub(super) fn same_value(a: &str, b: &str) -> bool {
    Decimal::of(a).equals(&Decimal::of(b))
}

/// The exact decimal value of a number text: ±0.d₁d₂d₃… × 10^exponent, d₁ and the last one not 0.
struct Decimal<'a> {
    negative: bool,
    /// The digits are those of these two, one after the other.
    digits: [&'a [u8]; 2],
    /// Where the point stands, counted from before the first digit. 0 for zero.
    exponent: i64,
}

impl<'a> Decimal<'a> {
    fn of(literal: &'a str) -> Self {
        let (negative, unsigned) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

        let length = |digits: &[u8]| i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let mut whole = trim_start(whole.as_bytes());
        let mut fraction = fraction.as_bytes();
        let mut exponent = exponent_value(exponent).saturating_add(length(whole));
        if whole.is_empty() {
            let trimmed = trim_start(fraction);
            exponent = exponent.saturating_sub(length(fraction) - length(trimmed));
            fraction = trimmed;
        }
        fraction = trim_end(fraction);
        if fraction.is_empty() {
            whole = trim_end(whole);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Self { negative: false, digits: [b"", b""], exponent: 0 };
        }
        Self { negative, digits: [whole, fraction], exponent }
    }

    fn equals(&self, other: &Decimal<'_>) -> bool {
        self.negative == other.negative
            && self.exponent == other.exponent
            && self.digits.iter().copied().flatten().eq(other.digits.iter().copied().flatten())
    }

    fn is_integral(&self) -> bool {
        let count: usize = self.digits.iter().map(|part| part.len()).sum();
        i64::try_from(count).is_ok_and(|count| self.exponent >= count)
    }
}

/// The value of an exponent's text. One beyond i64 stops at its end: no canonical text has such a one, so
/// nothing becomes equal by it.
fn exponent_value(text: &str) -> i64 {
    let beyond = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    text.parse().unwrap_or(beyond)
}

fn trim_start(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

fn trim_end(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    &digits[..digits.len() - zeros]
}
