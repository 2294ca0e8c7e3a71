//! `opledger policy`: what a policy file gets wrong, and what holds for an action type.

use crate::ledger::limits;
use crate::policy_file::{self, DEFAULT_ENTRY, Fault, Finding, PolicySet, Setting, Source, Warning};
use anstyle::{AnsiColor, Style};
use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde_json::{Map, Value as Json, json};
use std::{
    fmt::{Display, Write as _},
    io::{IsTerminal as _, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Exit code: done.
const GOOD: u8 = 0;
/// Exit code: the file has faults.
const FAULTY: u8 = 1;
/// Exit code: the file cannot be read, or the command makes no sense.
const UNUSABLE: u8 = 2;

const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// Checks policy files and shows what they decide.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Names every fault of a policy file with its line and column.
    ///
    /// Exit code: 0 the file can be used (there may be warnings), 1 it has faults, 2 it cannot be read.
    Check {
        /// The policy file; `-` reads standard input.
        file: PathBuf,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Shows every key that holds for an action type, and where its value comes from.
    ///
    /// Exit code: 0 done, 1 the file has faults, 2 it cannot be read or ACTION is no action type.
    Show {
        /// An action type, or `default` for all that have no entry.
        action: String,
        /// The policy file; without one, the built-in policy is shown.
        #[arg(long, value_name = "FILE", env = "OPLEDGER_POLICY")]
        policy: Option<PathBuf>,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
#[must_use]
pub fn run(args: PolicyArgs) -> ExitCode {
    let terminal = std::io::stdout().is_terminal();
    let output = match args.command {
        Command::Check { file, json } => match read(&file) {
            Ok(content) => check(&file, &content, json),
            Err(output) => output,
        },
        Command::Show { action, policy, json } => {
            let form = match (json, terminal) {
                (true, _) => Form::Json,
                (false, true) => Form::Table,
                (false, false) => Form::Plain,
            };
            show(&action, policy.as_deref(), form)
        }
    };
    // A reader that has gone (`| head`) is not a fault; colours are dropped where nobody sees them.
    let _ = anstream::stderr().write_all(output.err.as_bytes());
    let _ = anstream::stdout().write_all(output.out.as_bytes());
    ExitCode::from(output.code)
}

/// What a command says, before it is known whether there are colours to say it in.
#[derive(Debug, Default)]
struct Output {
    code: u8,
    out: String,
    err: String,
}

impl Output {
    fn unusable(message: impl Display) -> Self {
        Self { code: UNUSABLE, out: String::new(), err: format!("{RED}error:{RED:#} {message}\n") }
    }
}

/// How `show` says it.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Table,
    Plain,
    Json,
}

fn read(file: &Path) -> Result<Vec<u8>, Output> {
    let content = if file == Path::new("-") {
        let mut content = Vec::new();
        let limit = policy_file::FILE_BYTES_MAX as u64 + 1;
        std::io::stdin().lock().take(limit).read_to_end(&mut content).map(|_| content)
    } else {
        policy_file::read_file(file)
    };
    content.map_err(|error| Output::unusable(format_args!("{} cannot be read: {error}", file.display())))
}

fn check(file: &Path, content: &[u8], json: bool) -> Output {
    let (entries, faults, warnings) = match policy_file::parse_bytes(content) {
        Ok((set, warnings)) => (set.entries().len(), Vec::new(), warnings),
        Err(faults) => (0, faults, Vec::new()),
    };
    let code = if faults.is_empty() { GOOD } else { FAULTY };
    let out = if json {
        check_json(file, entries, &faults, &warnings)
    } else {
        check_text(file, entries, &faults, &warnings)
    };
    Output { code, out, err: String::new() }
}

fn check_json(file: &Path, entries: usize, faults: &[Fault], warnings: &[Warning]) -> String {
    let list = |findings: &[Finding]| -> Vec<Json> {
        let one =
            |f: &Finding| json!({"line": f.line, "column": f.column, "path": f.path, "message": f.message});
        findings.iter().map(one).collect()
    };
    let ok = faults.is_empty();
    let report = json!({
        "file": file.display().to_string(),
        "ok": ok,
        "entries": if ok { json!(entries) } else { Json::Null },
        "faults": list(faults),
        "warnings": list(warnings),
    });
    format!("{report:#}\n")
}

fn check_text(file: &Path, entries: usize, faults: &[Fault], warnings: &[Warning]) -> String {
    let file = file.display();
    let mut text = fault_lines(&file, faults);
    for warning in warnings {
        let _ = writeln!(text, "{}", line(&file, warning, &format!("{YELLOW}warning:{YELLOW:#} ")));
    }
    let _ = match (faults.len(), warnings.len()) {
        (0, 0) => writeln!(text, "{GREEN}{file}: good{GREEN:#}, {}", count(entries, "action type")),
        (0, some) => writeln!(
            text,
            "{GREEN}{file}: can be used{GREEN:#}, {}, {}",
            count(entries, "action type"),
            count(some, "warning")
        ),
        (some, _) => writeln!(text, "{RED}{file}: cannot be used{RED:#}, {}", count(some, "fault")),
    };
    text
}

fn fault_lines(file: &impl Display, faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("{}\n", line(file, fault, ""))).collect()
}

/// `FILE:LINE:COLUMN: path: message`, as editors and compilers' readers know it.
fn line(file: &impl Display, finding: &Finding, kind: &str) -> String {
    let Finding { line, column, path, message } = finding;
    let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
    format!("{DIM}{file}:{line}:{column}:{DIM:#} {kind}{path}{message}")
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn show(action: &str, file: Option<&Path>, form: Form) -> Output {
    if let Err(reason) = limits::action_type(action) {
        return Output::unusable(format_args!("{action:?} is no action type: it {reason}"));
    }
    let Some(file) = file else {
        return shown(&PolicySet::built_in(), action, None, form);
    };
    let content = match read(file) {
        Ok(content) => content,
        Err(output) => return output,
    };
    match policy_file::parse_bytes(&content) {
        Ok((set, _)) => shown(&set, action, Some(file), form),
        Err(faults) => {
            Output { code: FAULTY, out: String::new(), err: fault_lines(&file.display(), &faults) }
        }
    }
}

fn shown(set: &PolicySet, action: &str, file: Option<&Path>, form: Form) -> Output {
    let settings = set.explain(action);
    let own = set.has_entry(action);
    let out = match form {
        Form::Json => show_json(action, own, file, &settings),
        Form::Plain => show_plain(&settings),
        Form::Table => show_table(&settings),
    };
    let err = if form == Form::Json { String::new() } else { headline(set, action, file) };
    Output { code: GOOD, out, err }
}

/// Which entry it is about. Beside the output proper, so that a pipe gets rows only.
fn headline(set: &PolicySet, action: &str, file: Option<&Path>) -> String {
    let Some(file) = file.map(Path::display) else {
        return format!("{action}: no policy file given, the built-in policy holds\n");
    };
    if set.has_entry(action) {
        return format!("{action}: has an entry in {file}\n");
    }
    if action == DEFAULT_ENTRY {
        return format!("{action}: what holds for action types without an entry in {file}\n");
    }
    let near = set.nearest_entry(action);
    let hint = near.map(|name| format!(" ({YELLOW}did you mean{YELLOW:#} {name}?)")).unwrap_or_default();
    format!("{action}: has no entry in {file}{hint}, so `{DEFAULT_ENTRY}` holds\n")
}

fn show_json(action: &str, own: bool, file: Option<&Path>, settings: &[Setting]) -> String {
    let mut keys = Map::new();
    for setting in settings {
        let (source, line) = match setting.source {
            Source::Entry(line) => ("entry", Some(line)),
            Source::DefaultEntry(line) => ("default_entry", Some(line)),
            Source::BuiltIn => ("built_in", None),
        };
        let value = json!({"value": setting.value, "source": source, "line": line});
        keys.insert(setting.key.to_owned(), value);
    }
    let file = file.map(|file| file.display().to_string());
    let report = json!({"action_type": action, "has_entry": own, "file": file, "keys": keys});
    format!("{report:#}\n")
}

fn show_plain(settings: &[Setting]) -> String {
    let rows: Vec<[String; 3]> = settings.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    rows.iter().map(|[key, value, from]| format!("{key:first$}  {value:second$}  {from}\n")).collect()
}

fn show_table(settings: &[Setting]) -> String {
    let mut table = Table::new();
    // Some terminals say that they have no width: a long line is better than one letter a line.
    let narrow = table.width().is_none_or(|width| width < 60);
    let arrangement = if narrow { ContentArrangement::Disabled } else { ContentArrangement::Dynamic };
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(arrangement)
        .set_header(["key", "value", "from"])
        .add_rows(settings.iter().map(row));
    format!("{table}\n")
}

fn row(setting: &Setting) -> [String; 3] {
    let value = match &setting.value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let from = match setting.source {
        Source::Entry(line) => format!("entry, line {line}"),
        Source::DefaultEntry(line) => format!("default entry, line {line}"),
        Source::BuiltIn => "built-in".to_owned(),
    };
    [setting.key.to_owned(), value, from]
}

#[cfg(test)]
mod tests;
