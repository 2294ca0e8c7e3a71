//! Goal: every fault is named, at its place, with what to write instead; good files mean what they
//! say. Method: tables of small texts; the seed and the example as they stand; random texts.

use super::{Fault, PolicySet, Source, Warning, parse, parse_bytes};
use crate::ledger::policy::{Lookup, OnTimeout, OnUnresolved, Policy};
use proptest::prelude::*;
use std::time::Duration;

const SEED: &str = include_str!("../../tests/vectors/policy/seed.yaml");
const EXAMPLE: &str = include_str!("../../policy.example.yaml");
const REFERENCE: &str = include_str!("../../docs/policy.md");

fn good(text: &str) -> (PolicySet, Vec<Warning>) {
    parse(text).unwrap_or_else(|faults| panic!("{text}\n{faults:#?}"))
}

fn faults(text: &str) -> Vec<Fault> {
    parse(text).err().unwrap_or_else(|| panic!("was taken:\n{text}"))
}

/// `line:column: path: message`, one a line.
fn lines(findings: &[Fault]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// Each row: a text, and for each finding how it begins and what it contains.
fn assert_findings(text: &str, found: &[Fault], expected: &[(&str, &str)]) {
    assert_eq!(found.len(), expected.len(), "{text}\n{}", lines(found));
    for (finding, (begin, part)) in found.iter().zip(expected) {
        let line = finding.to_string();
        assert!(line.starts_with(begin) && line.contains(part), "{text}\n{line}\nnot: {begin} … {part}");
    }
}

/// An entry `a` that consists of one line; the line's text begins at line 3, column 5.
fn one_line(line: &str) -> String {
    format!("tool_policy:\n  a:\n    {line}\n")
}

/// Each row: the line of an entry, and its one fault.
fn assert_one_fault_each(table: &[(&str, &str, &str)]) {
    for (line, begin, part) in table {
        let text = one_line(line);
        assert_findings(&text, &faults(&text), &[(begin, part)]);
    }
}

#[test]
fn the_seed_loads_as_it_stands() {
    let (set, warnings) = good(SEED);
    assert_eq!(warnings, []);
    let names: Vec<&str> = set.entries().map(|(name, _)| name).collect();
    assert_eq!(names, ["create_payment", "send_email"]);
    for name in names {
        assert_eq!(**set.get(name), Policy::default(), "{name}");
    }
    assert_eq!(set.get("anything"), set.default_policy());
}

#[test]
fn the_example_states_every_key_with_its_built_in_value() {
    let (set, warnings) = good(EXAMPLE);
    assert_eq!(warnings, []);
    assert_eq!(**set.default_policy(), Policy::default());
    for setting in set.explain("no_entry") {
        assert!(matches!(setting.source, Source::DefaultEntry(_)), "{} is not stated", setting.key);
    }
    assert_eq!(set.get("create_payment").on_timeout, OnTimeout::RetrySameKey);
    assert_eq!(set.get("send_email").lookup, Lookup::None);
}

#[test]
fn the_reference_names_every_key_and_its_examples_load() {
    for setting in PolicySet::built_in().explain("any") {
        let key = format!("| `{}` |", setting.key);
        let row = REFERENCE.lines().find(|line| line.starts_with(&key));
        let row = row.unwrap_or_else(|| panic!("docs/policy.md has no row {key}"));
        let value = match setting.value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Array(words) => {
                let words: Vec<&str> = words.iter().filter_map(|word| word.as_str()).collect();
                format!("[{}]", words.join(", "))
            }
            other => other.to_string(),
        };
        let default = row.split('|').nth(3).unwrap_or_default().trim();
        assert_eq!(default, format!("`{value}`"), "{}", setting.key);
    }
    let examples: Vec<&str> = REFERENCE.split("```yaml\n").skip(1).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let text = example.split("```").next().unwrap_or_default();
        assert_eq!(good(text).1, [], "{text}");
    }
}

#[test]
fn entries_inherit_key_by_key() {
    let (set, _) = good(
        "
tool_policy:
  pay:
    lease:
      max_seconds: 40
    result: {redact: []}
    retention: {key_days: forever}
  default:
    lease: {default_seconds: 0.1}
    result: {redact: [/a, \"\", /m~0n/~1]}
    retention: {key_days: 7}
    max_attempts: 3
",
    );
    let pay = set.get("pay");
    assert_eq!(pay.lease_default, Duration::from_millis(100));
    assert_eq!(pay.lease_max, Duration::from_secs(40));
    assert_eq!((pay.max_attempts, pay.key_days), (3, None));
    assert!(pay.result_redact.is_empty(), "a list replaces the inherited one");
    let other = set.get("other");
    assert_eq!(other.result_redact, ["/a", "", "/m~0n/~1"]);
    assert_eq!((other.lease_max, other.key_days), (Duration::from_secs(600), Some(7)));

    let source = |action: &str, key: &str| {
        set.explain(action).into_iter().find(|setting| setting.key == key).map(|setting| setting.source)
    };
    assert_eq!(source("pay", "lease.max_seconds"), Some(Source::Entry(5)));
    assert_eq!(source("pay", "lease.default_seconds"), Some(Source::DefaultEntry(9)));
    assert_eq!(source("pay", "on_unresolved"), Some(Source::BuiltIn));
    assert_eq!(source("other", "max_attempts"), Some(Source::DefaultEntry(12)));
}

#[test]
fn every_key_is_read_into_its_field() {
    let (set, _) = good(
        "
tool_policy:
  a:
    operation_key: required
    retry: {reuse_operation_key: true, on_timeout: retry_same_key}
    terminal_states: [failed_final, succeeded]
    unknown_after_seconds: 1e3
    on_unresolved: keep_unknown
    max_attempts: 2
    provider: {lookup: authoritative, absence_settle_seconds: 0.5, idempotency_key_ttl_seconds: 86400}
    lease: {default_seconds: 1.5, max_seconds: 2}
    reconcile: {initial_delay_seconds: 3, multiplier: 1.5, max_interval_seconds: 4, jitter: 0}
    payload: {max_bytes: 10, reject_fractions: true}
    result: {max_bytes: 20, redact: ['/x']}
    retention: {result_days: 5, key_days: 6}
",
    );
    let expected = Policy {
        on_timeout: OnTimeout::RetrySameKey,
        unknown_after: Duration::from_secs(1000),
        on_unresolved: OnUnresolved::KeepUnknown,
        lookup: Lookup::Authoritative,
        absence_settle: Duration::from_millis(500),
        idempotency_key_ttl: Some(Duration::from_secs(86_400)),
        lease_default: Duration::from_millis(1500),
        lease_max: Duration::from_secs(2),
        max_attempts: 2,
        reconcile: crate::ledger::policy::Schedule {
            initial_delay: Duration::from_secs(3),
            multiplier: 1.5,
            max_interval: Duration::from_secs(4),
            jitter: 0.0,
        },
        payload_max_bytes: 10,
        reject_fractions: true,
        result_max_bytes: 20,
        result_redact: vec!["/x".into()],
        result_days: Some(5),
        key_days: Some(6),
    };
    assert_eq!(**set.get("a"), expected);
    let unset = set.explain("a").into_iter().filter(|setting| setting.source == Source::BuiltIn);
    assert_eq!(unset.count(), 0);
}

#[test]
fn faults_of_values() {
    let table = [
        (
            "operation_key: optional",
            "3:20: tool_policy.a.operation_key: can only be `required`",
            "stable key",
        ),
        (
            "retry: {reuse_operation_key: false}",
            "3:34: tool_policy.a.retry.reuse_operation_key:",
            "only be `true`",
        ),
        ("terminal_states: [succeeded]", "3:22: tool_policy.a.terminal_states:", "[succeeded, failed_final]"),
        ("terminal_states: [succeeded, failed_final, unknown]", "3:22: ", "never final"),
        ("terminal_states: succeeded", "3:22: ", "this is \"succeeded\""),
        ("on_unresolved: keep-unknown", "3:20: ", "did you mean `keep_unknown`?"),
        ("on_unresolved:", "3:5: ", "not nothing"),
        ("on_unresolved: ~", "3:20: ", "not nothing"),
        (
            "retry: {on_timeout: retry}",
            "3:25: tool_policy.a.retry.on_timeout:",
            "must be `reconcile_before_retry`",
        ),
        ("provider: {lookup: Eventual}", "3:24: ", "did you mean `eventual`?"),
        ("provider: {lookup: [none]}", "3:24: ", "not a list"),
        ("max_attempts: 0", "3:19: tool_policy.a.max_attempts:", "from 1 to 1000, not \"0\""),
        ("max_attempts: -1", "3:19: ", "not \"-1\""),
        ("max_attempts: 2.5", "3:19: ", "without a fraction"),
        ("max_attempts: 1001", "3:19: ", "from 1 to 1000"),
        ("max_attempts: many", "3:19: ", "must be a whole number, not \"many\""),
        ("max_attempts: true", "3:19: ", "not \"true\""),
        ("max_attempts: {}", "3:19: ", "not a mapping"),
        ("max_attempts: \"3\"", "3:19: ", "remove the quotes"),
        ("max_attempts: 0x10", "3:19: ", "in decimal"),
        ("max_attempts: 0o10", "3:19: ", "in decimal"),
        ("max_attempts: 010", "3:19: ", "without a leading 0"),
        ("max_attempts: 1_000", "3:19: ", "write 1000"),
        ("unknown_after_seconds: 15m", "3:28: ", "must be a number of seconds, not \"15m\": write 900"),
        ("unknown_after_seconds: 0", "3:28: ", "must be 0.1 to 315360000 seconds"),
        ("unknown_after_seconds: 0.09", "3:28: ", "must be 0.1"),
        ("unknown_after_seconds: 315360001", "3:28: ", "ten years"),
        ("unknown_after_seconds: 1e400", "3:28: ", "finite"),
        ("unknown_after_seconds: .inf", "3:28: ", "finite"),
        ("unknown_after_seconds: 1-2", "3:28: ", "must be a number of seconds"),
        ("provider: {absence_settle_seconds: -0.5}", "3:40: ", "must be 0 to"),
    ];
    assert_one_fault_each(&table);
}

#[test]
fn faults_of_values_in_sections() {
    let table = [
        ("provider: {idempotency_key_ttl_seconds: never}", "3:45: ", "or `none`"),
        ("provider: {idempotency_key_ttl_seconds: 24h}", "3:45: ", "write 86400"),
        ("provider: {idempotency_key_ttl_seconds: 0}", "3:45: ", "must be 0.1"),
        ("lease: {default_seconds: 0}", "3:30: tool_policy.a.lease.default_seconds:", "must be 0.1"),
        ("reconcile: {multiplier: .nan}", "3:29: ", "finite"),
        ("reconcile: {multiplier: -.Inf}", "3:29: ", "finite"),
        ("reconcile: {multiplier: 0.9}", "3:29: ", "must be 1 to 100"),
        ("reconcile: {jitter: 1.1}", "3:25: ", "must be 0 to 1"),
        ("payload: {max_bytes: 64KiB}", "3:26: ", "write 65536"),
        ("payload: {max_bytes: 16777217}", "3:26: ", "to 16777216"),
        ("payload: {reject_fractions: yes}", "3:33: ", "write `true`"),
        ("payload: {reject_fractions: \"false\"}", "3:33: ", "remove the quotes"),
        ("payload: {reject_fractions: []}", "3:33: ", "not a list"),
        ("result: {redact: /a}", "3:22: tool_policy.a.result.redact:", "must be a list"),
        ("result: {redact: [/a, b.c]}", "3:27: tool_policy.a.result.redact[1]:", "write \"/b/c\""),
        ("result: {redact: [$.a.b]}", "3:23: ", "JSON paths are not taken, write \"/a/b\""),
        ("result: {redact: ['#/a']}", "3:23: ", "write \"/a\", without `#`"),
        ("result: {redact: [/a~2]}", "3:23: ", "`~0`"),
        ("result: {redact: [/a~]}", "3:23: ", "`~0`"),
        ("result: {redact: [~]}", "3:23: ", "for the whole result"),
        ("result: {redact: [[/a]]}", "3:23: ", "not a list"),
        ("retention: {key_days: never}", "3:27: ", "or `forever`"),
        ("retention: {key_days: 0}", "3:27: ", "from 1 to 3650"),
        ("retention: {result_days: 2w}", "3:30: ", "write 14"),
    ];
    assert_one_fault_each(&table);
}

#[test]
fn faults_of_keys() {
    let table = [
        ("max_attempt: 3", "3:5: tool_policy.a.max_attempt: unknown key", "did you mean `max_attempts`?"),
        ("maxAttempts: 3", "3:5: ", "did you mean `max_attempts`?"),
        ("retries: {}", "3:5: ", "did you mean `retry`?"),
        ("lease: {max: 3}", "3:13: tool_policy.a.lease.max: unknown key", "did you mean `max_seconds`?"),
        ("lease: {colour: 3}", "3:13: ", "known here: `default_seconds`, `max_seconds`"),
        (
            "lease.max_seconds: 3",
            "3:5: tool_policy.a.\"lease.max_seconds\":",
            "write `lease:` and, indented below",
        ),
        ("on_timeout: retry_same_key", "3:5: ", "did you mean `on_timeout`, which stands below `retry`?"),
        ("retry: {on_unresolved: keep_unknown}", "3:13: ", "stands beside `retry`, not below it"),
        ("retry: {lookup: none}", "3:13: ", "below `provider`"),
        ("<<: {}", "3:5: ", "inherit from the `default` entry"),
        ("1: 2", "3:5: tool_policy.a.1: unknown key", "known here"),
        ("lease:", "3:5: tool_policy.a.lease: must be a mapping", "`lease: {}`"),
        ("lease: 30", "3:12: tool_policy.a.lease: must be a mapping", "not \"30\""),
        ("lease: []", "3:12: ", "not a list"),
        ("? [x]\n    : 1", "3:7: tool_policy.a: a key must be a plain text", ""),
        (": 1", "3:5: tool_policy.a", "a key is missing"),
        (
            "max_attempts: 1\n    max_attempts: 2",
            "4:5: tool_policy.a.max_attempts: is given twice",
            "on line 3",
        ),
        ("max_attempts: 1\n    \"max_attempts\": 2", "4:5: ", "is given twice"),
    ];
    assert_one_fault_each(&table);
}

#[test]
fn faults_of_the_whole_file() {
    let table = [
        ("", "1:1: is empty", "`tool_policy: {}`"),
        ("# nothing\n", "1:1: is empty", ""),
        ("{}", "1:1: is empty", ""),
        ("- a", "1:1: must be a mapping, not a list", ""),
        ("tool_policy", "1:1: must be a mapping, not a text: ", "begins with `tool_policy:`"),
        ("tool_policy:", "1:1: tool_policy: must be a mapping", "not nothing"),
        ("tool_policy: []", "1:14: tool_policy: must be a mapping", ""),
        ("tool_policy:\n  a:\n", "2:3: tool_policy.a: must be a mapping", "`a: {}`"),
        ("tool_policy:\n  a b: {}\n", "2:3: tool_policy.\"a b\": an action type must be", ""),
        (
            "tool_policy: {}\ntool_policies: {}",
            "2:1: tool_policies: unknown key",
            "did you mean `tool_policy`?",
        ),
        ("tool_policy: {}\nmax: {}", "2:1: max: unknown key", "action types stand below it"),
        ("tool_policy: {}\ntool_policy: {}", "2:1: tool_policy: is given twice", ""),
        ("tool_policy:\n  a: {}\n  a: {}", "3:3: tool_policy.a: is given twice", "on line 2"),
        ("tool_policy: {}\n---\ntool_policy: {}", "2:1: only one YAML document", ""),
        ("tool_policy:\n  a: {max_attempts: 1", "", "not valid YAML"),
        ("tool_policy:\n\ta: {}", "2:2: not valid YAML", "with spaces, not with tabs"),
        ("tool_policy: *x", "1:14: not valid YAML", "aliases"),
        ("tool_policy: &x {}", "1:14: tool_policy: anchors", "`default` entry"),
        ("tool_policy: !!map {}", "1:14: tool_policy: tags are not taken", ""),
    ];
    for (text, begin, part) in table {
        assert_findings(text, &faults(text), &[(begin, part)]);
    }
    // A misspelt root is both unknown and missing.
    let text = "tool-policy: {}";
    let expected = [("1:1: tool-policy: unknown key", "did you mean"), ("1:1: `tool_policy` is missing", "")];
    assert_findings(text, &faults(text), &expected);
}

#[test]
fn all_faults_at_once_in_order_of_place() {
    let text = "tool_policy:
  default:
    lease:
      default_seconds: 700
      max_second: 800
    max_attempts: none
  größe: {}
  send.mail:
    retry: &again
      on_timeout: retry_same_key
      on_timeout: reconcile_before_retry
    result:
      redact: [a, /b, c]
    reconcile: *again
    provider: {idempotency_key_ttl_seconds: 1d}
";
    let expected = [
        (
            "4:7: tool_policy.default.lease.default_seconds: ",
            "700, but `lease.max_seconds` is 600 (built-in)",
        ),
        ("5:7: tool_policy.default.lease.max_second: unknown key", "`max_seconds`?"),
        ("6:19: tool_policy.default.max_attempts: must be a whole number", ""),
        ("7:3: tool_policy.\"größe\": an action type must be", ""),
        ("9:12: tool_policy.\"send.mail\".retry: anchors", ""),
        ("11:7: tool_policy.\"send.mail\".retry.on_timeout: is given twice", "line 10"),
        ("13:16: tool_policy.\"send.mail\".result.redact[0]: ", "write \"/a\""),
        ("13:23: tool_policy.\"send.mail\".result.redact[2]: ", "write \"/c\""),
        ("14:16: tool_policy.\"send.mail\".reconcile: anchors", ""),
        // No complaint that retry_same_key lacks it: what it would have been is not known.
        ("15:45: tool_policy.\"send.mail\".provider.idempotency_key_ttl_seconds: ", "write 86400"),
    ];
    assert_findings(text, &faults(text), &expected);
}

#[test]
fn values_that_do_not_fit_together() {
    let table = [
        (
            "retry: {on_timeout: retry_same_key}",
            "3:13: tool_policy.a.retry.on_timeout: ",
            "`provider.idempotency_key_ttl_seconds` is none (built-in)",
        ),
        ("lease: {max_seconds: 29}", "3:13: tool_policy.a.lease.max_seconds: ", "is 30 (built-in), but"),
        ("lease: {default_seconds: 9, max_seconds: 8}", "3:13: ", "is 9, but `lease.max_seconds` is 8"),
        ("reconcile: {max_interval_seconds: 4}", "3:17: ", "`reconcile.initial_delay_seconds` is 5"),
        ("retention: {key_days: 4, result_days: 5}", "3:17: ", "is 4, but `retention.result_days` is 5"),
    ];
    assert_one_fault_each(&table);
    // A key without an end to its results: these go with the key.
    good(&one_line("retention: {key_days: 4, result_days: forever}"));
    // What default states is named; what default alone has wrong is said once.
    let text = "tool_policy:\n  default: {lease: {max_seconds: 50}}\n  a: {lease: {default_seconds: 51}}\n";
    assert_findings(text, &faults(text), &[("3:15: tool_policy.a", "is 50 (from `default`, line 2)")]);
    let text = "tool_policy:\n  default: {lease: {max_seconds: 1}}\n  a: {}\n  b: {max_attempts: 1}\n";
    assert_findings(text, &faults(text), &[("2:21: tool_policy.default", "")]);
    // An entry cures what default has wrong for itself only.
    let text = "tool_policy:\n  default: {lease: {max_seconds: 1}}\n  a: {lease: {default_seconds: 1}}\n";
    assert_findings(text, &faults(text), &[("2:21: tool_policy.default", "")]);
}

#[test]
fn warnings() {
    let table = [
        (
            "provider: {idempotency_key_ttl_seconds: 200000}\n    retention: {key_days: 2}",
            "4:17: tool_policy.a.retention.key_days: ",
            "the provider would still remember",
        ),
        (
            "unknown_after_seconds: 100000\n    retention: {key_days: 1}",
            "4:17: ",
            "`unknown_after_seconds` is 100000",
        ),
        ("lease: {max_seconds: 100000}\n    retention: {key_days: 1}", "4:17: ", "act again"),
        ("reconcile: {max_interval_seconds: 100000}\n    retention: {key_days: 1}", "4:17: ", "act again"),
        ("unknown_after_seconds: 29", "3:5: tool_policy.a.unknown_after_seconds: ", "lease still runs"),
        (
            "unknown_after_seconds: 40\n    reconcile: {initial_delay_seconds: 50}",
            "3:5: ",
            "before its first check",
        ),
        (
            "provider: {lookup: authoritative, absence_settle_seconds: 0}",
            "3:39: tool_policy.a.provider.absence_settle_seconds: ",
            "taken for absent",
        ),
        (
            "on_unresolved: keep_unknown\n    provider: {lookup: none}",
            "3:5: tool_policy.a.on_unresolved: ",
            "stays unknown for ever",
        ),
        (
            "retry: {on_timeout: retry_same_key}\n    provider: {idempotency_key_ttl_seconds: 20}",
            "4:16: tool_policy.a.provider.idempotency_key_ttl_seconds: ",
            "before the lease ends",
        ),
    ];
    for (line, begin, part) in table {
        let text = one_line(line);
        assert_findings(&text, &good(&text).1, &[(begin, part)]);
    }
    let text = "tool_policy:\n  defualt: {}\n";
    assert_findings(text, &good(text).1, &[("2:3: tool_policy.defualt: ", "did you mean `default`")]);
}

#[test]
fn unusual_but_good() {
    let table = [
        "\u{feff}tool_policy: {}",
        "tool_policy:\r\n  a:\r\n    max_attempts: 3\r\n",
        "---\ntool_policy: {}\n...\n",
        "%YAML 1.2\n---\ntool_policy: {}\n",
        "{\"tool_policy\": {\"a\": {\"max_attempts\": 3, \"lease\": {}}}}",
        "tool_policy: {'ns/a:b.c-1': {}, default: {}}",
    ];
    for text in table {
        good(text);
    }
}

#[test]
fn hostile_texts_are_refused_with_bounded_faults() {
    let mib = 1024 * 1024;
    let bomb = "a: &a [x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\ntool_policy: *c\n".to_owned();
    let repeated =
        ["[", "{", "a: ", "? ", "- ", "&a ", "!a ", "\"", "|\n", "*a ", "{a: ", "\t", "[a, ", "%", "'\n"];
    let mut texts: Vec<String> = repeated.iter().map(|part| part.repeat(mib / part.len())).collect();
    texts.push(bomb);
    texts.push("#".repeat(mib + 1));
    texts.push(format!("tool_policy: {{{}: 1}}", "k".repeat(mib / 2)));
    texts.push("tool_policy:\n".to_owned() + &"  a:\n".repeat(mib / 5 - 10));
    texts.push(format!(
        "tool_policy:\n  a:\n{}",
        (0..60_000).map(|n| format!("    k{n}: 1\n")).collect::<String>()
    ));
    texts.push("tool_policy: {a: {result: {redact: [".to_owned() + &"x,".repeat(mib / 2 - 50) + "]}}}");
    for text in texts {
        let faults = faults(&text);
        let shown: String = text.chars().take(40).collect();
        assert!(faults.len() <= super::FAULTS_MAX + 1, "{shown:?}: {} faults", faults.len());
        assert!(faults.iter().all(|fault| fault.to_string().len() < 2000), "{shown:?}");
        assert!(faults.iter().all(|fault| fault.line > 0 && fault.column > 0), "{shown:?}");
    }
}

#[test]
fn messages_carry_nothing_a_terminal_acts_on() {
    let text = "tool_policy: {\"\\e[2J\": {\"\\a\": 1}, b: {max_attempts: \"\\e]0;x\\a\"}}";
    let found = faults(text);
    assert_eq!(found.len(), 3, "{}", lines(&found));
    assert!(!lines(&found).contains(['\u{1b}', '\u{7}']), "{:?}", lines(&found));
}

#[test]
fn not_utf8() {
    let found = parse_bytes(b"tool_policy:\n  \xc3\xa9\xff: {}").expect_err("not UTF-8");
    assert_findings("bytes", &found, &[("2:4: is not UTF-8", "save the file")]);
}

/// Pieces that get further into the parser than random characters.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "tool_policy:",
        "default:",
        "a:",
        "retry:",
        "lease:",
        "max_seconds:",
        "redact:",
        "\n",
        "\n  ",
        "\n    ",
        "\n      ",
        " ",
        "- ",
        "? ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&x ",
        "*x",
        "!t ",
        "'",
        "\"",
        "|",
        ">",
        "#",
        "---",
        "...",
        "%",
        "~",
        "1",
        "0.5",
        "none",
        "\t",
        "\r",
        "é",
        "\u{feff}",
        "\u{85}",
        "\\",
        "<<",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// The example with some characters replaced, so that whole entries are still read.
fn damaged() -> impl Strategy<Value = String> {
    let edit = (
        any::<prop::sample::Index>(),
        prop::sample::select(vec!["", " ", "\n", ":", "-", "&a", "[", "}", "9", "é"]),
    );
    prop::collection::vec(edit, 1..6).prop_map(|edits| {
        let mut text: Vec<String> = EXAMPLE.chars().map(String::from).collect();
        for (index, piece) in edits {
            let place = index.index(text.len());
            text[place] = piece.to_owned();
        }
        text.concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text gives policies or faults, and every fault has a place and a message.
    #[test]
    fn never_panics(text in prop_oneof![pieces(), damaged(), "\\PC{0,80}", any::<String>()]) {
        if let Err(faults) = parse(&text) {
            prop_assert!(!faults.is_empty());
            for fault in faults {
                prop_assert!(fault.line > 0 && fault.column > 0 && !fault.message.is_empty(), "{fault}");
            }
        }
    }
}
