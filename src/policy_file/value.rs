//! Nodes → values. Each refusal says what to write instead.

use super::{
    quoted,
    yaml::{At, Node, Value},
};
use std::time::Duration;

/// Ten years of 365 days: nothing in a policy is longer.
const SECONDS_MAX: f64 = 315_360_000.0;
/// The shortest time that makes sense where zero does not: the shortest lease.
const SECONDS_MIN: f64 = crate::ledger::limits::LEASE_MIN.as_millis() as f64 / 1000.0;
/// Ten years.
const DAYS_MAX: u32 = 3650;
/// The largest payload and result that a policy may allow.
pub(super) const BYTES_MAX: usize = 16 * 1024 * 1024;

/// One thing wrong with a value.
#[derive(Debug)]
pub(super) struct Wrong {
    pub at: At,
    /// Which item, where the value is a list.
    pub item: Option<usize>,
    pub message: String,
}

pub(super) type Read<T> = Result<T, Vec<Wrong>>;

fn wrong<T>(node: &Node, message: impl Into<String>) -> Read<T> {
    Err(vec![Wrong { at: node.at, item: None, message: message.into() }])
}

/// What a node is, for "…, not …".
pub(super) fn describe(node: &Node) -> String {
    match &node.value {
        Value::Scalar { text, plain: true } if is_null(text) => "nothing".into(),
        Value::Scalar { text, plain: true } => quoted(text),
        Value::Scalar { text, plain: false } => format!("the text {}", quoted(text)),
        Value::List(_) => "a list".into(),
        Value::Map(_) => "a mapping".into(),
        Value::Refused => "something refused".into(),
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A duration of which zero makes no sense.
pub(super) fn seconds(node: &Node) -> Read<Duration> {
    seconds_from(node, SECONDS_MIN)
}

/// A duration that may be zero.
pub(super) fn seconds_or_zero(node: &Node) -> Read<Duration> {
    seconds_from(node, 0.0)
}

fn seconds_from(node: &Node, min: f64) -> Read<Duration> {
    let what = "a number of seconds";
    let value = number(node, what)?;
    let range = format!("must be {min} to {SECONDS_MAX} seconds (ten years)");
    let value = in_range(node, value, min, SECONDS_MAX, &range)?;
    // Microseconds are what both databases carry exactly.
    Ok(Duration::from_micros((value * 1e6).round() as u64))
}

/// A duration, or the word for having none.
pub(super) fn seconds_or(node: &Node, word: &str) -> Read<Option<Duration>> {
    none_or(node, word, "a number of seconds", seconds)
}

/// A number of days, or the word for having no end.
pub(super) fn days_or(node: &Node, word: &str) -> Read<Option<u32>> {
    let days = |node: &Node| whole(node, "a whole number of days", 1, DAYS_MAX);
    none_or(node, word, "a whole number of days", days)
}

fn none_or<T>(node: &Node, word: &str, what: &str, read: impl Fn(&Node) -> Read<T>) -> Read<Option<T>> {
    match &node.value {
        Value::Scalar { text, .. } if text == word => Ok(None),
        Value::Scalar { text, plain } if !plain || !is_number_like(text) => {
            let hint = unit_hint(text, what).unwrap_or_default();
            wrong(node, format!("must be {what} or `{word}`, not {}{hint}", describe(node)))
        }
        _ => read(node).map(Some),
    }
}

/// A size in bytes.
pub(super) fn bytes(node: &Node) -> Read<usize> {
    whole(node, "a whole number of bytes", 1, BYTES_MAX as u32).map(|n| n as usize)
}

/// A count from 1 to a million.
pub(super) fn count(node: &Node) -> Read<i32> {
    whole(node, "a whole number", 1, 1000).map(u32::cast_signed)
}

/// A number from `min` to `max`, fractions allowed.
pub(super) fn factor(node: &Node, min: f64, max: f64) -> Read<f64> {
    let value = number(node, "a number")?;
    in_range(node, value, min, max, &format!("must be {min} to {max}"))
}

fn whole(node: &Node, what: &str, min: u32, max: u32) -> Read<u32> {
    let value = number(node, what)?;
    if value.fract() != 0.0 {
        return wrong(node, format!("must be {what}, without a fraction, not {}", describe(node)));
    }
    let range = format!("must be {what} from {min} to {max}");
    in_range(node, value, f64::from(min), f64::from(max), &range).map(|n| n as u32)
}

fn in_range(node: &Node, value: f64, min: f64, max: f64, range: &str) -> Read<f64> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    wrong(node, format!("{range}, not {}", describe(node)))
}

/// A finite decimal number. YAML's other spellings are refused rather than guessed at.
fn number(node: &Node, what: &str) -> Read<f64> {
    let Value::Scalar { text, plain } = &node.value else {
        return wrong(node, format!("must be {what}, not {}", describe(node)));
    };
    let digits = text.trim_start_matches(['+', '-']);
    let hint = if !plain && is_number_like(text) {
        ": remove the quotes".to_owned()
    } else if is_not_finite(digits) {
        ": it must be finite".to_owned()
    } else if digits.len() > 1 && digits.starts_with('0') && !digits[1..].starts_with(['.', 'e', 'E']) {
        ": write it in decimal, without a leading 0".to_owned()
    } else if is_number_like(text) {
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => return Ok(value),
            Ok(_) => ": it must be finite".to_owned(),
            Err(_) => String::new(),
        }
    } else {
        unit_hint(text, what).unwrap_or_default()
    };
    wrong(node, format!("must be {what}, not {}{hint}", describe(node)))
}

fn is_number_like(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        || is_not_finite(text.trim_start_matches(['+', '-']))
}

fn is_not_finite(digits: &str) -> bool {
    let word = digits.trim_start_matches('.').to_ascii_lowercase();
    matches!(word.as_str(), "inf" | "infinity" | "nan")
}

/// What `15m`, `64KiB` or `1_000` should have been.
fn unit_hint(text: &str, what: &str) -> Option<String> {
    let plain = text.trim().replace(['_', ','], "");
    let split = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (digits, unit) = plain.split_at(split);
    let value: f64 = digits.parse().ok()?;
    let scale = match (unit.trim().to_ascii_lowercase().as_str(), what) {
        ("", _) => 1.0,
        ("ms", "a number of seconds") => 0.001,
        ("s" | "sec" | "seconds", "a number of seconds") => 1.0,
        ("m" | "min" | "minutes", "a number of seconds") => 60.0,
        ("h" | "hours", "a number of seconds") => 3600.0,
        ("d" | "days", "a number of seconds") => 86_400.0,
        ("d" | "days", "a whole number of days") => 1.0,
        ("w" | "weeks", "a whole number of days") => 7.0,
        ("y" | "years", "a whole number of days") => 365.0,
        ("b" | "bytes", "a whole number of bytes") => 1.0,
        ("k" | "ki" | "kb" | "kib", "a whole number of bytes") => 1024.0,
        ("m" | "mi" | "mb" | "mib", "a whole number of bytes") => 1_048_576.0,
        _ => return None,
    };
    Some(format!(": write {}", value * scale))
}

/// `true` or `false`.
pub(super) fn switch(node: &Node) -> Read<bool> {
    let Value::Scalar { text, plain } = &node.value else {
        return wrong(node, format!("must be `true` or `false`, not {}", describe(node)));
    };
    let hint = match text.to_ascii_lowercase().as_str() {
        "true" if *plain => return Ok(true),
        "false" if *plain => return Ok(false),
        "true" | "false" => ": remove the quotes",
        "yes" | "on" | "1" => ": write `true`",
        "no" | "off" | "0" => ": write `false`",
        _ => "",
    };
    wrong(node, format!("must be `true` or `false`, not {}{hint}", describe(node)))
}

/// A value of which the file may name one of several, each by its word.
pub(super) trait Word: Copy + PartialEq + 'static {
    const WORDS: &'static [(&'static str, Self)];

    /// The word in the file.
    fn as_word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// One of the words of `T`.
pub(super) fn word<T: Word>(node: &Node) -> Read<T> {
    if let Value::Scalar { text, .. } = &node.value
        && let Some((_, value)) = T::WORDS.iter().find(|(word, _)| word == text)
    {
        return Ok(*value);
    }
    let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
    wrong(node, not_one_of(node, &words))
}

fn not_one_of(node: &Node, words: &[&str]) -> String {
    let near = match &node.value {
        Value::Scalar { text, .. } => super::near::nearest(text, words.iter().copied()),
        _ => None,
    };
    let hint = near.map(|word| format!("; did you mean `{word}`?")).unwrap_or_default();
    format!("must be `{}`, not {}{hint}", words.join("`, `"), describe(node))
}

/// The one value that a key takes: the file may state it, it cannot weaken it.
pub(super) fn only(node: &Node, value: &str, why: &str) -> Read<()> {
    match &node.value {
        Value::Scalar { text, plain } if text == value && (*plain || value != "true") => Ok(()),
        _ => wrong(node, format!("can only be `{value}`, not {}: {why}", describe(node))),
    }
}

/// `[succeeded, failed_final]`, in either order.
pub(super) fn terminal_states(node: &Node) -> Read<()> {
    const WHY: &str = "can only be [succeeded, failed_final]: `unknown` and the like are never final";
    let Value::List(items) = &node.value else {
        return wrong(node, format!("{WHY}; this is {}", describe(node)));
    };
    let mut names: Vec<&str> = items.iter().filter_map(text_of).collect();
    names.sort_unstable();
    if names == ["failed_final", "succeeded"] && items.len() == 2 { Ok(()) } else { wrong(node, WHY) }
}

fn text_of(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

/// A list of JSON pointers (RFC 6901).
pub(super) fn pointers(node: &Node) -> Read<Vec<String>> {
    let Value::List(items) = &node.value else {
        let what = "must be a list of JSON pointers such as [\"/card/number\"]";
        return wrong(node, format!("{what}, not {}", describe(node)));
    };
    let mut faults = Vec::new();
    let mut pointers = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match pointer(item) {
            Ok(pointer) => pointers.push(pointer),
            Err(message) => faults.push(Wrong { at: item.at, item: Some(index), message }),
        }
    }
    if faults.is_empty() { Ok(pointers) } else { Err(faults) }
}

fn pointer(node: &Node) -> Result<String, String> {
    let Value::Scalar { text, plain } = &node.value else {
        return Err(format!("must be a JSON pointer (RFC 6901), not {}", describe(node)));
    };
    if *plain && is_null(text) {
        return Err("must be a JSON pointer (RFC 6901): for the whole result write \"\"".into());
    }
    let named = |what: String| Err(format!("{} is not a JSON pointer (RFC 6901): {what}", quoted(text)));
    if let Some(rest) = text.strip_prefix('#') {
        return named(format!("write {}, without `#`", quoted(rest)));
    }
    if let Some(rest) = text.strip_prefix("$.").or_else(|| text.strip_prefix('$')) {
        return named(format!("JSON paths are not taken, write {}", quoted(&slashed(rest))));
    }
    if !text.is_empty() && !text.starts_with('/') {
        return named(format!("it begins with `/`, write {}", quoted(&slashed(text))));
    }
    let mut after_tilde = text.split('~').skip(1);
    if after_tilde.any(|rest| !rest.starts_with(['0', '1'])) {
        return named("write `~` as `~0` (and `/` within a name as `~1`)".into());
    }
    Ok(text.clone())
}

fn slashed(path: &str) -> String {
    format!("/{}", path.trim_start_matches('.').replace('.', "/"))
}
