//! The policy file: YAML → one resolved [`Policy`] per action type, every fault with its place.
//!
//! [`parse`] names all faults at once; [`reload`] keeps the last good file in force.

pub mod reload;

pub use reload::Policies;

mod check;
mod keys;
mod near;
mod read;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

use crate::ledger::policy::Policy;
use std::{collections::BTreeMap, fmt, io::Read as _, path::Path, sync::Arc};

/// A larger file is refused unread.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// The most that `payload.max_bytes` and `result.max_bytes` may say.
pub const CONTENT_BYTES_MAX: usize = value::BYTES_MAX;
/// No more faults than these are named: a text with more is no policy, and must not fill the log.
pub const FAULTS_MAX: usize = 1000;
/// The entry from which the others inherit.
pub const DEFAULT_ENTRY: &str = "default";

/// Something to say about a place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Counts from 1.
    pub line: usize,
    /// In characters, counts from 1.
    pub column: usize,
    /// As in `tool_policy.create_payment.lease.max_seconds`; empty where the whole file is meant.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// The file cannot be used.
pub type Fault = Finding;
/// The file can be used, but hardly says what was meant.
pub type Warning = Finding;

impl Finding {
    fn new(at: yaml::At, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { line: at.line, column: at.column, path: path.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The action type's own entry, on this line.
    Entry(usize),
    /// The `default` entry, on this line.
    DefaultEntry(usize),
    /// Nothing in the file: [`Policy::default`].
    BuiltIn,
}

/// One key of a policy, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// With its section, as in `lease.max_seconds`.
    pub key: &'static str,
    /// The value as the file would spell it.
    pub value: serde_json::Value,
    /// Where it comes from.
    pub source: Source,
}

#[derive(Clone, Debug)]
struct Entry {
    policy: Arc<Policy>,
    /// One for each of [`keys::KEYS`].
    sources: Vec<Source>,
}

impl Entry {
    fn built_in() -> Self {
        Self { policy: Arc::default(), sources: vec![Source::BuiltIn; keys::KEYS.len()] }
    }
}

/// The policies of all action types.
#[derive(Clone, Debug)]
pub struct PolicySet {
    default: Entry,
    entries: BTreeMap<String, Entry>,
}

impl PolicySet {
    /// What holds where no file is given: [`Policy::default`] for every action type.
    #[must_use]
    pub fn built_in() -> Self {
        Self { default: Entry::built_in(), entries: BTreeMap::new() }
    }

    /// The policy of an action type: of its entry, or else of `default`.
    #[must_use]
    pub fn get(&self, action_type: &str) -> &Arc<Policy> {
        &self.entry(action_type).policy
    }

    /// Whether the action type has an entry of its own.
    #[must_use]
    pub fn has_entry(&self, action_type: &str) -> bool {
        self.entries.contains_key(action_type)
    }

    /// The policy of action types that have no entry.
    #[must_use]
    pub fn default_policy(&self) -> &Arc<Policy> {
        &self.default.policy
    }

    /// The action types that have an entry, by name; without `default`.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<Policy>)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.policy))
    }

    /// Every key that holds for an action type, with where it comes from.
    #[must_use]
    pub fn explain(&self, action_type: &str) -> Vec<Setting> {
        let entry = self.entry(action_type);
        let pairs = keys::KEYS.iter().zip(&entry.sources);
        pairs
            .map(|(key, source)| Setting { key: key.path, value: (key.show)(&entry.policy), source: *source })
            .collect()
    }

    /// An action type with an entry, of almost this name.
    #[must_use]
    pub fn nearest_entry(&self, action_type: &str) -> Option<&str> {
        near::nearest(action_type, self.entries.keys().map(String::as_str))
    }

    fn entry(&self, action_type: &str) -> &Entry {
        self.entries.get(action_type).unwrap_or(&self.default)
    }
}

impl Default for PolicySet {
    fn default() -> Self {
        Self::built_in()
    }
}

/// Reads a policy file's text.
///
/// # Errors
/// All faults, in the order of their places. Where the text is not even YAML, the first place only.
pub fn parse(text: &str) -> Result<(PolicySet, Vec<Warning>), Vec<Fault>> {
    if text.len() > FILE_BYTES_MAX {
        return Err(vec![whole_file("is larger than 1 MiB: a policy needs a few lines per action type")]);
    }
    let mut loaded = yaml::load(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut outcome = Err(Vec::new());
    if !loaded.broken_off {
        outcome = read::document(loaded.root.as_ref());
    }
    if loaded.faults.is_empty() {
        return outcome;
    }
    loaded.faults.extend(outcome.err().into_iter().flatten());
    loaded.faults.sort_by_key(|fault| (fault.line, fault.column));
    Err(loaded.faults)
}

/// Reads a policy file's content, which may be anything.
///
/// # Errors
/// As [`parse`], and where the content is not UTF-8.
pub fn parse_bytes(content: &[u8]) -> Result<(PolicySet, Vec<Warning>), Vec<Fault>> {
    let error = match std::str::from_utf8(content) {
        Ok(text) => return parse(text),
        Err(error) => error,
    };
    let good = String::from_utf8_lossy(&content[..error.valid_up_to()]);
    let last_line = good.rsplit('\n').next().unwrap_or_default();
    let at = yaml::At { line: good.matches('\n').count() + 1, column: last_line.chars().count() + 1 };
    Err(vec![Fault::new(at, "", "is not UTF-8 from here on: save the file as UTF-8")])
}

/// Reads a file's content, of a huge one no more than is needed to refuse it.
///
/// # Errors
/// The file cannot be opened or read.
pub fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}

fn whole_file(message: &str) -> Fault {
    Fault::new(yaml::At { line: 1, column: 1 }, "", message)
}

/// A path one step longer. Names that would be hard to read in it are quoted.
fn join(path: &str, key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let quote = key.len() > 80 || key.is_empty() || !key.chars().all(plain);
    let key = if quote { quoted(key) } else { key.to_owned() };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// A text of the file as a message shows it: cut where it is long, nothing a terminal would act on.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    let shown: String = text.chars().take(SHOWN).collect();
    format!("\"{}{more}\"", printable(&shown))
}

/// A text without control characters: these become `\u{…}`.
fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}
