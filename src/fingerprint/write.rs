//! Writes the canonical form (RFC 8785) of a value that was read.

use super::{
    Rules,
    fault::Error,
    number,
    parse::{Node, Value},
};
use std::borrow::Cow;

/// The canonical form of `node`, which was read from `text`.
pub(super) fn canonical(text: &str, node: &Node<'_>, rules: Rules) -> Result<String, Error> {
    // Rarely more than the text itself: only numbers can grow.
    let mut out = String::with_capacity(text.len());
    write(&mut out, node, rules)?;
    Ok(out)
}

fn write(out: &mut String, node: &Node<'_>, rules: Rules) -> Result<(), Error> {
    match &node.value {
        Value::Word(word) => out.push_str(word),
        Value::Number(literal) => {
            number::write(out, literal, rules).map_err(|kind| Error::new(node.start, kind))?;
        }
        Value::String(string) => write_string(out, string),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(out, item, rules)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, member) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(out, &member.name);
                out.push(':');
                write(out, &member.node, rules)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

#[expect(clippy::ptr_arg, reason = "borrowed or owned says whether there were escapes")]
fn write_string(out: &mut String, string: &Cow<'_, str>) {
    out.push('"');
    match string {
        // Written without escapes, so it holds nothing that needs one.
        Cow::Borrowed(plain) => out.push_str(plain),
        Cow::Owned(unescaped) => unescaped.chars().for_each(|c| write_char(out, c)),
    }
    out.push('"');
}

fn write_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{c}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '\0'..='\u{1f}' => {
            out.push_str("\\u00");
            for nibble in [u32::from(c) >> 4, u32::from(c) & 15] {
                out.extend(char::from_digit(nibble, 16));
            }
        }
        _ => out.push(c),
    }
}
