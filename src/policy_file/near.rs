//! "Did you mean …?"

use strsim::osa_distance;

/// Nothing known is longer: a huge text costs no comparison.
const LENGTH_MAX: usize = 80;

/// The known word that was probably meant, if one is near enough to say so.
pub(super) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > LENGTH_MAX {
        return None;
    }
    let plain = bare(given);
    let near =
        |word: &&str| is_typo(given, word) || is_part(&plain, &bare(word)) || inflects(&plain, &bare(word));
    known.filter(near).min_by_key(|word| osa_distance(&plain, &bare(word)))
}

/// Whether a word is another one mistyped.
pub(super) fn is_typo(given: &str, word: &str) -> bool {
    if given.len() > LENGTH_MAX {
        return false;
    }
    let (given, word) = (bare(given), bare(word));
    let distance = osa_distance(&given, &word);
    distance <= (word.chars().count() / 4).max(1) && distance < word.chars().count()
}

/// `default` for `default_seconds`, `attempts` for `max_attempts`.
fn is_part(given: &str, word: &str) -> bool {
    given.len() >= 3 && (word.starts_with(given) || given.len() >= 4 && word.ends_with(given))
}

/// `retries` for `retry`, `reconciliation` for `reconcile`.
fn inflects(given: &str, word: &str) -> bool {
    let same = given.bytes().zip(word.bytes()).take_while(|(a, b)| a == b).count();
    same >= 4 && same + 1 >= word.len() && given.len() <= word.len() + 5
}

/// Case, `-`, `_` and blanks are what people mix up most.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_misses() {
        const KNOWN: [&str; 5] = ["max_attempts", "default_seconds", "max_seconds", "on_timeout", "lookup"];
        let table = [
            ("max_attempt", Some("max_attempts")),
            ("maxAttempts", Some("max_attempts")),
            ("MAX-ATTEMPTS", Some("max_attempts")),
            ("attempts", Some("max_attempts")),
            ("default", Some("default_seconds")),
            ("on_tiemout", Some("on_timeout")),
            ("look_up", Some("lookup")),
            ("def", Some("default_seconds")),
            ("look_ups", Some("lookup")),
            ("lookupable", Some("lookup")),
            ("ma", None),
            ("colour", None),
            ("", None),
        ];
        for (given, expected) in table {
            assert_eq!(nearest(given, KNOWN.into_iter()), expected, "{given}");
        }
    }
}
