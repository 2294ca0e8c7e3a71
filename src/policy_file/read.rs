//! The tree → policies. Goes on after each fault, so that all are named at once.

use super::{
    DEFAULT_ENTRY, Entry, FAULTS_MAX, Fault, PolicySet, Source, Warning, check, join,
    keys::{self, KEYS, SECTIONS},
    near::{is_typo, nearest},
    quoted,
    value::describe,
    whole_file,
    yaml::{At, Member, Node, Value},
};
use crate::ledger::{limits, policy::Policy};
use std::sync::Arc;

const ROOT: &str = "tool_policy";

/// Everything found so far.
#[derive(Default)]
pub(super) struct Findings {
    pub faults: Vec<Fault>,
    pub warnings: Vec<Warning>,
}

impl Findings {
    fn fault(&mut self, at: At, path: impl Into<String>, message: impl Into<String>) {
        self.add(Fault::new(at, path, message));
    }

    pub(super) fn add(&mut self, fault: Fault) {
        if !self.is_full() {
            self.faults.push(fault);
        }
    }

    fn is_full(&self) -> bool {
        self.faults.len() >= FAULTS_MAX
    }
}

/// One entry while it is read.
pub(super) struct Draft {
    /// As in `tool_policy.create_payment`.
    pub path: String,
    pub policy: Policy,
    /// Where the entry itself states a key, for each of [`KEYS`].
    pub own: Vec<Option<At>>,
    /// Keys whose value is not known because it was refused, here or in `default`.
    pub refused: Vec<bool>,
    pub sources: Vec<Source>,
}

/// Reads a whole document.
pub(super) fn document(root: Option<&Node>) -> Result<(PolicySet, Vec<Warning>), Vec<Fault>> {
    let mut findings = Findings::default();
    let set = policies(root, &mut findings);
    if findings.faults.is_empty() {
        findings.warnings.sort_by_key(|warning| (warning.line, warning.column));
        return Ok((set, findings.warnings));
    }
    if findings.is_full() {
        findings.faults.push(whole_file(&format!("has more faults than the {FAULTS_MAX} that are named")));
    }
    findings.faults.sort_by_key(|fault| (fault.line, fault.column));
    Err(findings.faults)
}

fn policies(root: Option<&Node>, findings: &mut Findings) -> PolicySet {
    let mut set = PolicySet::built_in();
    let Some(members) = tool_policy(root, findings) else { return set };
    // `default` first, wherever it stands: the others inherit from it.
    let mut base = Draft::built_in();
    for member in members.iter().filter(|member| member.key == DEFAULT_ENTRY) {
        entry(member, &mut base, findings);
    }
    for member in members.iter().filter(|member| member.key != DEFAULT_ENTRY) {
        let path = join(ROOT, &member.key);
        if let Err(message) = limits::action_type(&member.key) {
            findings.fault(member.at, path.as_str(), format!("an action type {message}"));
        }
        warn_of_misnamed_default(member, findings);
        let mut draft = base.heir(path);
        entry(member, &mut draft, findings);
        set.entries.insert(member.key.clone(), draft.finish(Source::Entry));
    }
    set.default = base.finish(Source::DefaultEntry);
    set
}

/// The members of `tool_policy`.
fn tool_policy<'a>(root: Option<&'a Node>, findings: &mut Findings) -> Option<&'a [Member]> {
    const REMEDY: &str = "the file begins with `tool_policy:` (for the built-in policy `tool_policy: {}`)";
    let Some(root) = root else {
        findings.faults.push(whole_file(&format!("is empty: {REMEDY}")));
        return None;
    };
    let members = match &root.value {
        Value::Map(members) => members,
        Value::Refused => return None,
        _ => {
            // Not quoted: a path that points at some other file may point at a secret.
            let what = if matches!(root.value, Value::List(_)) { "a list" } else { "a text" };
            findings.fault(root.at, "", format!("must be a mapping, not {what}: {REMEDY}"));
            return None;
        }
    };
    let mut found = None;
    for member in members {
        if member.key == ROOT {
            found = mapping(&member.value, ROOT, ROOT, findings);
            continue;
        }
        let hint = match nearest(&member.key, [ROOT].into_iter()) {
            Some(_) => format!("did you mean `{ROOT}`?"),
            None => format!("only `{ROOT}` is known here; action types stand below it"),
        };
        findings.fault(member.at, join("", &member.key), format!("unknown key; {hint}"));
    }
    if members.is_empty() {
        findings.fault(root.at, "", format!("is empty: {REMEDY}"));
    } else if members.iter().all(|member| member.key != ROOT) {
        findings.fault(root.at, "", format!("`{ROOT}` is missing: {REMEDY}"));
    }
    found
}

/// The members of a node that must be a mapping.
fn mapping<'a>(node: &'a Node, path: &str, key: &str, findings: &mut Findings) -> Option<&'a [Member]> {
    match &node.value {
        Value::Map(members) => Some(members),
        Value::Refused => None,
        _ => {
            let message = format!(
                "must be a mapping of indented keys, not {} (if it has none, write `{}: {{}}`)",
                describe(node),
                join("", key)
            );
            findings.fault(node.at, path, message);
            None
        }
    }
}

fn warn_of_misnamed_default(member: &Member, findings: &mut Findings) {
    if is_typo(&member.key, DEFAULT_ENTRY) {
        let message = "is an action type of its own; did you mean `default`, which the others inherit?";
        findings.warnings.push(Warning::new(member.at, join(ROOT, &member.key), message));
    }
}

/// Reads one entry into its draft, then checks whether its values fit together.
fn entry(member: &Member, draft: &mut Draft, findings: &mut Findings) {
    let path = draft.path.clone();
    let Some(members) = mapping(&member.value, &path, &member.key, findings) else { return };
    for member in members {
        if !SECTIONS.contains(&member.key.as_str()) {
            key(member, "", draft, findings);
            continue;
        }
        let path = join(&path, &member.key);
        let members = mapping(&member.value, &path, &member.key, findings).unwrap_or_default();
        for inner in members {
            key(inner, &member.key, draft, findings);
        }
    }
    check::entry(draft, findings);
}

/// Reads one key of a section; "" is the entry itself.
fn key(member: &Member, section: &str, draft: &mut Draft, findings: &mut Findings) {
    let parent = if section.is_empty() { draft.path.clone() } else { join(&draft.path, section) };
    let path = join(&parent, &member.key);
    let known = within_section(section, &member.key).and_then(|full| keys::position(&full));
    let Some(index) = known else {
        if findings.is_full() {
            return;
        }
        findings.fault(member.at, path, unknown_key(&member.key, section));
        return;
    };
    draft.own[index] = Some(member.at);
    draft.refused[index] = matches!(member.value.value, Value::Refused);
    if draft.refused[index] {
        return;
    }
    if let Err(wrongs) = (KEYS[index].read)(&mut draft.policy, &member.value) {
        draft.refused[index] = true;
        for wrong in wrongs {
            let item = wrong.item.map(|item| format!("[{item}]")).unwrap_or_default();
            findings.fault(wrong.at, format!("{path}{item}"), wrong.message);
        }
    }
}

/// The full path of a key in a section. A key that is written with dots belongs to none.
fn within_section(section: &str, key: &str) -> Option<String> {
    match (section, key.contains('.')) {
        (_, true) => None,
        ("", false) => Some(key.to_owned()),
        (section, false) => Some(format!("{section}.{key}")),
    }
}

/// What to write instead of an unknown key.
fn unknown_key(key: &str, section: &str) -> String {
    if key == "<<" {
        return "merge keys are not taken: action types inherit from the `default` entry".into();
    }
    if let Some((first, rest)) = key.split_once('.')
        && keys::position(key).is_some()
    {
        return format!("unknown key; write `{first}:` and, indented below it, `{rest}:`");
    }
    let here = || keys::within(section).chain(SECTIONS.into_iter().filter(|_| section.is_empty()));
    if let Some(near) = nearest(key, here()) {
        return format!("unknown key; did you mean `{near}`?");
    }
    if !section.is_empty() && (SECTIONS.contains(&key) || keys::position(key).is_some()) {
        return format!("unknown key; `{key}` stands beside `{section}`, not below it: indent it less");
    }
    for elsewhere in SECTIONS.into_iter().chain([""]).filter(|other| *other != section) {
        if let Some(near) = nearest(key, keys::within(elsewhere)) {
            let place = if elsewhere.is_empty() {
                format!("beside `{section}`, not below it")
            } else {
                format!("below `{elsewhere}`")
            };
            return format!("unknown key; did you mean `{near}`, which stands {place}?");
        }
    }
    let known: Vec<&str> = here().collect();
    format!("unknown key {}; known here: `{}`", quoted(key), known.join("`, `"))
}

impl Draft {
    fn built_in() -> Self {
        let entry = Entry::built_in();
        Self {
            path: join(ROOT, DEFAULT_ENTRY),
            policy: Policy::default(),
            own: vec![None; KEYS.len()],
            refused: vec![false; KEYS.len()],
            sources: entry.sources,
        }
    }

    /// A draft that begins with what this one, the `default` entry, says.
    fn heir(&self, path: String) -> Self {
        let inherited = |own: &Option<At>| own.map_or(Source::BuiltIn, |at| Source::DefaultEntry(at.line));
        Self {
            path,
            policy: self.policy.clone(),
            own: vec![None; KEYS.len()],
            refused: self.refused.clone(),
            sources: self.own.iter().map(inherited).collect(),
        }
    }

    /// Where the value of a key comes from.
    pub(super) fn source(&self, index: usize) -> Source {
        self.own[index].map_or(self.sources[index], |at| Source::Entry(at.line))
    }

    /// The finished entry; `own` says how a line of its own is called from outside.
    fn finish(self, own: fn(usize) -> Source) -> Entry {
        let stated = self.own.iter().zip(self.sources);
        let sources = stated.map(|(at, inherited)| at.map_or(inherited, |at| own(at.line))).collect();
        Entry { policy: Arc::new(self.policy), sources }
    }
}
