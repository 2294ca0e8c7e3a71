//! The rules of the source tree that no compiler holds: which layer may name which, and how long a file may be.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A layer: the modules of this crate that it may name, and the words that it must not.
struct Layer {
    name: &'static str,
    may_name: &'static [&'static str],
    never: &'static [&'static str],
}

const NO_WORLD: &[&str] =
    &["tokio", "sqlx", "tonic", "prost", "SystemTime", "Instant", "rand", "now_v7", "new_v4"];

const LAYERS: &[Layer] = &[
    Layer { name: "ledger", may_name: &["ledger", "fingerprint"], never: NO_WORLD },
    Layer { name: "fingerprint", may_name: &[], never: NO_WORLD },
    Layer { name: "policy_file", may_name: &["ledger", "fingerprint"], never: &["sqlx", "tonic", "prost"] },
    Layer { name: "store", may_name: &["ledger", "store", "failpoint"], never: &["tonic", "prost"] },
    Layer {
        name: "engine",
        may_name: &["ledger", "store", "policy_file", "telemetry"],
        never: &["sqlx", "tonic", "prost"],
    },
    Layer {
        name: "grpc",
        may_name: &[
            "ledger",
            "fingerprint",
            "store",
            "policy_file",
            "engine",
            "grpc",
            "proto",
            "telemetry",
            "health",
            "shutdown",
        ],
        never: &["sqlx"],
    },
];

const LINES_MAX: usize = 600;
/// To be split.
const LONGER: &[&str] = &["tests/it/store_conformance.rs"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files with this ending below a folder.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// True where `word` stands in the line by itself.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
}

/// The modules of this crate that a text names: `crate::name` and `crate::{name, name::…}`.
fn modules(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(word(rest));
            continue;
        };
        let (mut depth, mut fresh) = (0, true);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => fresh = true,
                c if fresh && depth == 0 && !c.is_whitespace() => {
                    found.push(word(&group[at..]));
                    fresh = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn modules_are_found_in_groups() {
    let text = "use crate::{ledger::{Key, limits}, store};\nuse crate::engine::Engine; crate::proto::x()";
    assert_eq!(modules(text), ["ledger", "store", "engine", "proto"]);
    assert!(names("use rand::Rng;", "rand") && !names("operand + brand_new", "rand"));
}

#[test]
fn lower_layers_do_not_name_higher_ones() {
    let mut faults = Vec::new();
    for Layer { name, may_name, never } in LAYERS {
        let mut sources = vec![root().join("src").join(format!("{name}.rs"))];
        files(&root().join("src").join(name), "rs", &mut sources);
        for path in sources.iter().filter(|path| !path.ends_with("tests.rs")) {
            let text = fs::read_to_string(path).unwrap();
            let code: Vec<&str> =
                text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            for module in modules(&code.join("\n")) {
                if !may_name.contains(&&*module) {
                    faults.push(format!("{}: {name} must not name crate::{module}", shown(path)));
                }
            }
            for (number, line) in code.iter().enumerate() {
                for word in never.iter().filter(|word| names(line, word)) {
                    faults.push(format!("{}:{}: {name} must not name {word}", shown(path), number + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn files_are_short_enough_to_be_read() {
    let mut sources = Vec::new();
    for (folder, ending) in [("src", "rs"), ("tests", "rs"), ("tests", "py")] {
        files(&root().join(folder), ending, &mut sources);
    }
    let mut faults = Vec::new();
    for path in &sources {
        let lines = fs::read_to_string(path).unwrap().lines().count();
        if lines > LINES_MAX && !LONGER.contains(&&*shown(path)) {
            faults.push(format!("{}: {lines} lines, at most {LINES_MAX}", shown(path)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
