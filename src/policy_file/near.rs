//! "Did you mean …?"

use strsim::osa_distance;

/// The known word that was probably meant, if one is near enough to say so.
pub(super) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Nothing known is longer than 64: a huge text costs no comparison.
    if given.is_empty() || given.len() > 64 {
        return None;
    }
    let plain = bare(given);
    known
        .filter_map(|word| {
            let bare_word = bare(word);
            let distance = osa_distance(&plain, &bare_word);
            // `lease.default` for `default_seconds`: the unit was left out, or only the unit given.
            let part = plain.len() >= 4 && (bare_word.starts_with(&plain) || bare_word.ends_with(&plain));
            let near = distance <= (bare_word.len() / 4).max(1) && distance < bare_word.len();
            (near || part).then_some((distance, word))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
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
        const KNOWN: [&str; 5] =
            ["max_attempts", "default_seconds", "max_seconds", "on_timeout", "lookup"];
        let table = [
            ("max_attempt", Some("max_attempts")),
            ("maxAttempts", Some("max_attempts")),
            ("MAX-ATTEMPTS", Some("max_attempts")),
            ("attempts", Some("max_attempts")),
            ("default", Some("default_seconds")),
            ("on_tiemout", Some("on_timeout")),
            ("look_up", Some("lookup")),
            ("max", None),
            ("colour", None),
            ("", None),
        ];
        for (given, expected) in table {
            assert_eq!(nearest(given, KNOWN.into_iter()), expected, "{given}");
        }
    }
}
