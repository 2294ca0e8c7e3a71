//! Goal: what the commands print and how they exit. Method: their output as texts, without colours.

use super::*;
use anstream::adapter::strip_str;
use clap::{CommandFactory as _, Parser};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    policy: PolicyArgs,
}

fn checked(text: &str, json: bool) -> (u8, String) {
    let output = check(Path::new("p.yaml"), text.as_bytes(), json);
    assert_eq!(output.err, "");
    (output.code, strip_str(&output.out).to_string())
}

/// A policy file in a temporary folder, which lives as long as the folder does.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("p.yaml");
    std::fs::write(&path, text).expect("write");
    (folder, path)
}

#[test]
fn the_commands_are_well_defined() {
    Cli::command().debug_assert();
    assert!(Cli::try_parse_from(["policy", "check"]).is_err());
    assert!(Cli::try_parse_from(["policy", "show", "pay", "--json", "--policy", "p.yaml"]).is_ok());
}

#[test]
fn check_names_each_fault() {
    let text = "tool_policy:\n  a: {max_attempt: 1}\n  b: {max_attempts: 0}\n";
    let expected = "\
p.yaml:2:7: tool_policy.a.max_attempt: unknown key; did you mean `max_attempts`?
p.yaml:3:21: tool_policy.b.max_attempts: must be a whole number from 1 to 1000, not \"0\"
p.yaml: cannot be used, 2 faults
";
    assert_eq!(checked(text, false), (FAULTY, expected.to_owned()));
}

#[test]
fn check_lets_warnings_pass() {
    let expected = "\
p.yaml:2:7: warning: tool_policy.a.unknown_after_seconds: `unknown_after_seconds` is 20, but \
`lease.default_seconds` is 30 (built-in): an attempt becomes unknown while its lease still runs; \
raise the first or lower the second
p.yaml: can be used, 1 action type, 1 warning
";
    let text = "tool_policy:\n  a: {unknown_after_seconds: 20}\n";
    assert_eq!(checked(text, false), (GOOD, expected.to_owned()));
    assert_eq!(checked("tool_policy: {}", false), (GOOD, "p.yaml: good, 0 action types\n".to_owned()));
}

#[test]
fn check_in_json() {
    let (code, out) = checked("tool_policy:\n  a: {max_attempts: 0}\n", true);
    let report: Json = serde_json::from_str(&out).expect("JSON");
    assert_eq!(code, FAULTY);
    assert_eq!(report["ok"], json!(false));
    assert_eq!(report["faults"][0]["line"], json!(2));
    assert_eq!(report["faults"][0]["column"], json!(21));
    assert_eq!(report["faults"][0]["path"], json!("tool_policy.a.max_attempts"));
    let (code, out) = checked("tool_policy: {a: {}}", true);
    let report: Json = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &report["entries"], &report["warnings"]), (GOOD, &json!(1), &json!([])));
}

#[test]
fn what_cannot_be_read_is_not_a_fault() {
    let output = read(Path::new("/nowhere/p.yaml")).expect_err("no such file");
    assert_eq!((output.code, output.out.as_str()), (UNUSABLE, ""));
    assert!(output.err.contains("/nowhere/p.yaml cannot be read"), "{}", output.err);
    assert_eq!(show("pay", Some(Path::new("/nowhere/p.yaml")), Form::Plain).code, UNUSABLE);
    assert_eq!(show("not an action type", None, Form::Plain).code, UNUSABLE);
}

#[test]
fn show_says_where_each_value_comes_from() {
    let (_folder, path) =
        file("tool_policy:\n  default: {max_attempts: 3}\n  pay: {lease: {max_seconds: 45.5}}\n");
    let output = show("pay", Some(&path), Form::Plain);
    let row = |key: &str| {
        let row = output.out.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(output.code, GOOD);
    assert_eq!(row("lease.max_seconds"), ["lease.max_seconds", "45.5", "entry, line 3"]);
    assert_eq!(row("max_attempts"), ["max_attempts", "3", "default entry, line 2"]);
    assert_eq!(row("retention.key_days"), ["retention.key_days", "forever", "built-in"]);
    assert_eq!(row("operation_key"), ["operation_key", "required", "built-in"]);
    assert!(output.err.starts_with("pay: has an entry in "), "{}", output.err);

    let other = show("pya", Some(&path), Form::Table);
    let headline = strip_str(&other.err).to_string();
    assert!(headline.contains("(did you mean pay?), so `default` holds"), "{headline}");
    assert!(other.out.contains('│') && other.out.contains("default entry, line 2"), "{}", other.out);
    assert!(show("default", Some(&path), Form::Plain).err.contains("without an entry"));
    assert!(show("pay", None, Form::Plain).err.contains("no policy file given"));
}

#[test]
fn show_in_json() {
    let (_folder, path) = file("tool_policy:\n  pay: {result: {redact: [/a]}}\n");
    let output = show("pay", Some(&path), Form::Json);
    let report: Json = serde_json::from_str(&output.out).expect("JSON");
    assert_eq!((output.code, output.err.as_str()), (GOOD, ""));
    assert_eq!(report["has_entry"], json!(true));
    assert_eq!(report["keys"]["result.redact"], json!({"value": ["/a"], "source": "entry", "line": 2}));
    assert_eq!(
        report["keys"]["lease.default_seconds"],
        json!({"value": 30, "source": "built_in", "line": null})
    );
}

#[test]
fn show_refuses_a_faulty_file() {
    let (_folder, path) = file("tool_policy:\n  pay: {max_attempts: 0}\n");
    let output = show("pay", Some(&path), Form::Plain);
    assert_eq!((output.code, output.out.as_str()), (FAULTY, ""));
    assert!(strip_str(&output.err).to_string().contains("p.yaml:2:23: tool_policy.pay.max_attempts: "));
}
