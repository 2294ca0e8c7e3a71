//! YAML text → a tree in which every node knows its line and column.
//!
//! Only what a policy needs is taken: one document of mappings, lists and scalars. Anchors, aliases
//! and tags are refused, so nothing expands, and nothing is nested deeper than [`DEPTH_MAX`].

use super::{FAULTS_MAX, Fault, join, printable};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use std::collections::HashMap;

/// A policy needs 4 levels; beyond this the text is hostile.
const DEPTH_MAX: usize = 16;

/// Where something begins; both count from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub line: usize,
    pub column: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub at: At,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// `plain`: without quotes, so that `900` is a number and `"900"` a text.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Member>),
    /// Already complained about; readers pass over it.
    Refused,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub at: At,
    pub key: String,
    pub value: Node,
}

/// What the text held: the tree as far as it could be built, and what is wrong with it.
pub(super) struct Loaded {
    pub root: Option<Node>,
    /// The text could not be read to its end, so what is missing in the tree means nothing.
    pub broken_off: bool,
    pub faults: Vec<Fault>,
}

/// Reads a text as one YAML document.
pub(super) fn load(text: &str) -> Loaded {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    let mut broken_off = false;
    while let Some(event) = parser.next_event() {
        let taken = match event {
            Ok((event, span)) if builder.faults.len() < FAULTS_MAX => builder.take(event, span),
            Ok((_, span)) => {
                Err(Fault::new(start(span), "", "too many faults: nothing is read from here on"))
            }
            Err(error) => Err(syntax_fault(text, &error)),
        };
        if let Err(fault) = taken {
            builder.faults.push(fault);
            broken_off = true;
            break;
        }
    }
    drop::<Parser<'_, StrInput<'_>>>(parser);
    Loaded { root: builder.root, broken_off, faults: builder.faults }
}

/// A collection that is still open.
struct Frame {
    at: At,
    content: Open,
}

enum Open {
    List(Vec<Node>),
    Map { members: Vec<Member>, seen: HashMap<String, At>, key: Option<Key> },
}

/// A key whose value comes next.
struct Key {
    at: At,
    text: String,
    /// Its value is dropped: the key was complained about.
    refused: bool,
}

#[derive(Default)]
struct Builder {
    frames: Vec<Frame>,
    root: Option<Node>,
    documents: usize,
    faults: Vec<Fault>,
}

impl Builder {
    /// Takes one event in. An error ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let at = start(span);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.fault(at, "only one YAML document is taken: remove the `---` here"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_decoration(at, anchor != 0, tag.is_some());
                let plain = style == ScalarStyle::Plain;
                self.put(Node { at, value: Value::Scalar { text: text.into_owned(), plain } });
            }
            Event::Alias(_) => {
                self.faults.push(self.fault(at, NO_ALIASES));
                self.put(Node { at, value: Value::Refused });
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_decoration(at, anchor != 0, tag.is_some());
                self.open(at, Open::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_decoration(at, anchor != 0, tag.is_some());
                self.open(at, Open::Map { members: Vec::new(), seen: HashMap::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn refuse_decoration(&mut self, at: At, anchor: bool, tag: bool) {
        if anchor {
            self.faults.push(self.fault(at, NO_ALIASES));
        }
        if tag {
            self.faults.push(self.fault(at, "tags are not taken: remove the word that begins with `!`"));
        }
    }

    fn open(&mut self, at: At, content: Open) -> Result<(), Fault> {
        if self.frames.len() == DEPTH_MAX {
            return Err(self.fault(at, format!("nested deeper than {DEPTH_MAX} levels; a policy needs 4")));
        }
        self.frames.push(Frame { at, content });
        Ok(())
    }

    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        let value = match frame.content {
            Open::List(items) => Value::List(items),
            Open::Map { members, .. } => Value::Map(members),
        };
        self.put(Node { at: frame.at, value });
    }

    /// A complete node: the root, a list's item, a key, or the value of the key before it.
    fn put(&mut self, node: Node) {
        let Some(frame) = self.frames.last_mut() else {
            self.root.get_or_insert(node);
            return;
        };
        let (at, complaint) = match &mut frame.content {
            Open::List(items) => return items.push(node),
            Open::Map { members, seen, key } => {
                if let Some(waiting) = key.take() {
                    if !waiting.refused {
                        let value = value_or_its_key(node, waiting.at);
                        members.push(Member { at: waiting.at, key: waiting.text, value });
                    }
                    return;
                }
                let at = node.at;
                let (next, complaint) = as_key(node, seen);
                *key = Some(next);
                (at, complaint)
            }
        };
        if let Some(message) = complaint {
            self.faults.push(self.fault(at, message));
        }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match &frame.content {
                Open::List(items) => path.push_str(&format!("[{}]", items.len())),
                Open::Map { key: Some(key), .. } if !key.text.is_empty() => path = join(&path, &key.text),
                Open::Map { .. } => {}
            }
        }
        path
    }

    fn fault(&self, at: At, message: impl Into<String>) -> Fault {
        Fault::new(at, self.path(), message)
    }
}

fn start(span: Span) -> At {
    At { line: span.start.line().max(1), column: span.start.col() + 1 }
}

const NO_ALIASES: &str = "anchors (`&`), aliases (`*`) and merge keys are not taken: \
                          put what action types share into the `default` entry, they inherit from it";

/// A missing value has no place of its own: it is reported at its key.
fn value_or_its_key(mut node: Node, key: At) -> Node {
    if matches!(&node.value, Value::Scalar { text, plain: true } if text.is_empty()) {
        node.at = key;
    }
    node
}

/// Takes a node as a key, with the complaint where it cannot be one.
fn as_key(node: Node, seen: &mut HashMap<String, At>) -> (Key, Option<String>) {
    let at = node.at;
    let (text, complaint) = match node.value {
        Value::Scalar { text, .. } if text.is_empty() => {
            (text, Some("a key is missing before this `:`".to_owned()))
        }
        Value::Scalar { text, .. } => {
            let first = *seen.entry(text.clone()).or_insert(at);
            let twice = format!("is given twice, first on line {}: remove one of the two", first.line);
            (text, (first != at).then_some(twice))
        }
        // The alias was complained about when it was read.
        Value::Refused => return (Key { at, text: String::new(), refused: true }, None),
        Value::List(_) | Value::Map(_) => {
            (String::new(), Some("a key must be a plain text, not a list or a mapping".to_owned()))
        }
    };
    (Key { at, text, refused: complaint.is_some() }, complaint)
}

/// The scanner's message, with what usually is the cause.
fn syntax_fault(text: &str, error: &ScanError) -> Fault {
    let at = At { line: error.marker().line().max(1), column: error.marker().col() + 1 };
    let indent = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
    let tabs = text.lines().nth(at.line - 1).is_some_and(indent);
    let remedy = if tabs {
        "indent with spaces, not with tabs"
    } else {
        "check the indentation, the quotes and the `:` on this line and the one before"
    };
    let unknown_alias = error.info().contains("anchor");
    let remedy = if unknown_alias { NO_ALIASES } else { remedy };
    Fault::new(at, String::new(), format!("not valid YAML ({}): {remedy}", printable(error.info())))
}
