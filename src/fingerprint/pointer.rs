//! Places in a JSON text (JSON pointers, RFC 6901): which ones differ, and blanking them.

use super::{
    number,
    parse::{self, Member, Node, Value, utf16_order},
};
use std::{borrow::Cow, cmp::Ordering, ops::Range};

/// A longer pointer is not reported; the place that contains it is.
const POINTER_BYTES_MAX: usize = 200;

/// True for a JSON pointer: empty, or segments that each begin with `/`, with `~` only as `~0` and `~1`.
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    let escaped = |rest: &str| rest.starts_with('0') || rest.starts_with('1');
    (text.is_empty() || text.starts_with('/')) && text.split('~').skip(1).all(escaped)
}

/// The places at which two JSON texts differ by value, at most `max` of them, in the order of member
/// names: names only, never values. Empty where they do not differ, or where one is no JSON.
///
/// The whole text is the empty pointer. Where a name is very long, the object that has it is named.
#[must_use]
pub fn differing_pointers(a: &str, b: &str, max: usize) -> Vec<String> {
    let mut search = Search { place: String::new(), found: Vec::new(), max };
    if let (Ok(a), Ok(b)) = (parse::parse(a), parse::parse(b)) {
        search.compare(&a, &b);
    }
    search.found
}

struct Search {
    /// The pointer of what is being compared.
    place: String,
    found: Vec<String>,
    max: usize,
}

impl Search {
    fn compare(&mut self, a: &Node<'_>, b: &Node<'_>) {
        match (&a.value, &b.value) {
            (Value::Word(a), Value::Word(b)) if a == b => {}
            (Value::Number(a), Value::Number(b)) if number::same_value(a, b) => {}
            (Value::String(a), Value::String(b)) if a == b => {}
            (Value::Array(a), Value::Array(b)) => {
                for i in 0..a.len().max(b.len()) {
                    if self.found.len() >= self.max {
                        return;
                    }
                    self.descend(&i.to_string(), a.get(i), b.get(i));
                }
            }
            (Value::Object(a), Value::Object(b)) => self.compare_members(a, b),
            _ => self.note(),
        }
    }

    /// Both are sorted: walks them side by side.
    fn compare_members(&mut self, mut a: &[Member<'_>], mut b: &[Member<'_>]) {
        while self.found.len() < self.max {
            let order = match (a.first(), b.first()) {
                (Some(x), Some(y)) => utf16_order(&x.name, &y.name),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return,
            };
            let x = if order.is_le() { a.split_off_first() } else { None };
            let y = if order.is_ge() { b.split_off_first() } else { None };
            if let Some(either) = x.or(y) {
                self.descend(&either.name, x.map(|member| &member.node), y.map(|member| &member.node));
            }
        }
    }

    /// Compares what is at `segment` of the current place; one side may be missing.
    fn descend(&mut self, segment: &str, a: Option<&Node<'_>>, b: Option<&Node<'_>>) {
        let parent = self.place.len();
        let segment = escape(segment);
        if parent + 1 + segment.len() > POINTER_BYTES_MAX {
            let mut inner = Search { place: String::new(), found: Vec::new(), max: 1 };
            inner.compare_sides(a, b);
            if !inner.found.is_empty() {
                self.note();
            }
            return;
        }
        self.place.push('/');
        self.place.push_str(&segment);
        self.compare_sides(a, b);
        self.place.truncate(parent);
    }

    fn compare_sides(&mut self, a: Option<&Node<'_>>, b: Option<&Node<'_>>) {
        match (a, b) {
            (Some(a), Some(b)) => self.compare(a, b),
            _ => self.note(),
        }
    }

    fn note(&mut self) {
        // It is there already only where several names did not fit into the pointer.
        if self.found.len() < self.max && !self.found.contains(&self.place) {
            self.found.push(self.place.clone());
        }
    }
}

fn escape(segment: &str) -> Cow<'_, str> {
    if segment.contains(['~', '/']) {
        Cow::Owned(segment.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(segment)
    }
}

/// The text with the value at each pointer replaced by `null`, the rest byte for byte as given.
///
/// A pointer to nothing changes nothing. A text that is no JSON cannot be searched, so all of it is
/// replaced: [`super::check`] it before.
#[must_use]
pub fn redact(text: &str, pointers: &[impl AsRef<str>]) -> String {
    if pointers.is_empty() {
        return text.to_owned();
    }
    let Ok(root) = parse::parse(text) else {
        return "null".to_owned();
    };
    let mut blanks: Vec<Range<usize>> = pointers
        .iter()
        .filter_map(|pointer| find(&root, pointer.as_ref()))
        .map(|node| node.start..node.end)
        .collect();
    // Where one place contains another, the outer one begins earlier, and the inner one is skipped below.
    blanks.sort_unstable_by_key(|blank| blank.start);

    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for blank in blanks {
        if blank.start >= copied {
            out.push_str(&text[copied..blank.start]);
            out.push_str("null");
            copied = blank.end;
        }
    }
    out.push_str(&text[copied..]);
    out
}

fn find<'n, 'a>(root: &'n Node<'a>, pointer: &str) -> Option<&'n Node<'a>> {
    if !is_pointer(pointer) {
        return None;
    }
    let mut node = root;
    for segment in pointer.split('/').skip(1) {
        node = match &node.value {
            Value::Array(items) => items.get(index(segment)?)?,
            Value::Object(members) => {
                let name = segment.replace("~1", "/").replace("~0", "~");
                let at = members.binary_search_by(|member| utf16_order(&member.name, &name)).ok()?;
                &members[at].node
            }
            _ => return None,
        };
    }
    Some(node)
}

/// The index that a segment names: digits without a leading zero.
fn index(segment: &str) -> Option<usize> {
    let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits && (segment.len() == 1 || !segment.starts_with('0'));
    if plain { segment.parse().ok() } else { None }
}
