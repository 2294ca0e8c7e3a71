//! Reads a JSON text (RFC 8259, strictly) into nodes that borrow from it.
//!
//! Members come out sorted as RFC 8785 wants them, with duplicates refused; numbers stay texts.

use super::{
    DEPTH_MAX,
    fault::{Error, Kind},
};
use std::{borrow::Cow, cmp::Ordering};

/// A value and its place in the text.
#[derive(Debug)]
pub(super) struct Node<'a> {
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
    pub value: Value<'a>,
}

#[derive(Debug)]
pub(super) enum Value<'a> {
    /// `null`, `true` or `false`.
    Word(&'static str),
    /// As written.
    Number(&'a str),
    /// Borrowed where it was written without escapes.
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    /// Sorted by name, no name twice.
    Object(Vec<Member<'a>>),
}

#[derive(Debug)]
pub(super) struct Member<'a> {
    /// Borrowed where it was written without escapes.
    pub name: Cow<'a, str>,
    /// First byte of the name's text.
    start: usize,
    pub node: Node<'a>,
}

/// Reads one value that makes up the whole text.
pub(super) fn parse(text: &str) -> Result<Node<'_>, Error> {
    if text.starts_with('\u{feff}') {
        return Err(Error::new(0, Kind::ByteOrderMark));
    }
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, depth: 0 };
    reader.skip_space();
    let node = reader.value("expected a JSON value")?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.fault(Kind::TrailingText));
    }
    Ok(node)
}

/// The order of RFC 8785: by UTF-16 code units.
///
/// It differs from the order of UTF-8 bytes only in that surrogate pairs (lead bytes 0xF0 to 0xF4) come
/// before U+E000 to U+FFFF (lead bytes 0xEE and 0xEF).
pub(super) fn utf16_order(a: &str, b: &str) -> Ordering {
    // Then the first difference has an ASCII byte on one side, or one text is the other's beginning.
    if a.is_ascii() || b.is_ascii() {
        return a.cmp(b);
    }
    let rank = |byte: u8| if matches!(byte, 0xEE | 0xEF) { byte + 0x10 } else { byte };
    a.bytes().map(rank).cmp(b.bytes().map(rank))
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn fault(&self, kind: Kind) -> Error {
        Error::new(self.at, kind)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// What is wrong where `expected` should be.
    fn unexpected(&self, expected: &'static str) -> Error {
        let kind = if self.at < self.bytes.len() { Kind::Expected(expected) } else { Kind::UnexpectedEnd };
        self.fault(kind)
    }

    fn value(&mut self, expected: &'static str) -> Result<Node<'a>, Error> {
        let start = self.at;
        let value = match self.peek() {
            Some(b'"') => Value::String(self.string()?),
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
            Some(b'n') => self.word("null")?,
            Some(b't') => self.word("true")?,
            Some(b'f') => self.word("false")?,
            Some(b'N' | b'I' | b'+' | b'.') => return Err(self.fault(Kind::BadNumber)),
            _ => return Err(self.unexpected(expected)),
        };
        Ok(Node { start, end: self.at, value })
    }

    /// Reads what begins with a bracket. The limit also bounds the recursion.
    fn nested(&mut self, read: fn(&mut Self) -> Result<Value<'a>, Error>) -> Result<Value<'a>, Error> {
        if self.depth == DEPTH_MAX {
            return Err(self.fault(Kind::TooDeep));
        }
        self.depth += 1;
        self.at += 1;
        self.skip_space();
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn array(&mut self) -> Result<Value<'a>, Error> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value("expected a value")?);
            if self.closes(b']', "expected ',' or ']'")? {
                return Ok(Value::Array(items));
            }
        }
    }

    fn object(&mut self) -> Result<Value<'a>, Error> {
        let mut members: Vec<Member<'a>> = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        // Most writers sort already, or have few members: sort only where it is needed.
        let mut sorted = true;
        loop {
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("expected a member name in double quotes"));
            }
            let name = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("expected ':' after a member name"));
            }
            self.at += 1;
            self.skip_space();
            let node = self.value("expected a value")?;
            sorted = sorted && members.last().is_none_or(|last| utf16_order(&last.name, &name).is_lt());
            members.push(Member { name, start, node });
            if self.closes(b'}', "expected ',' or '}'")? {
                break;
            }
        }
        if !sorted {
            sort(&mut members)?;
        }
        Ok(Value::Object(members))
    }

    /// After an item: true where the bracket closes, false where another item follows a comma.
    fn closes(&mut self, bracket: u8, expected: &'static str) -> Result<bool, Error> {
        self.skip_space();
        let closes = match self.peek() {
            Some(b',') => false,
            Some(byte) if byte == bracket => true,
            _ => return Err(self.unexpected(expected)),
        };
        self.at += 1;
        if !closes {
            self.skip_space();
        }
        Ok(closes)
    }

    fn word(&mut self, word: &'static str) -> Result<Value<'a>, Error> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(
                self.fault(Kind::Expected("expected a JSON value: the only words are true, false and null"))
            );
        }
        self.at += word.len();
        Ok(Value::Word(word))
    }

    /// Reads the text of a number by RFC 8259; its value is judged later.
    fn number(&mut self) -> Result<&'a str, Error> {
        let start = self.at;
        let bad = Error::new(start, Kind::BadNumber);
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match (self.peek(), self.digits()) {
            (Some(b'0'), 1) | (Some(b'1'..=b'9'), _) => {}
            _ => return Err(bad),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(bad);
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(bad);
            }
        }
        Ok(&self.text[start..self.at])
    }

    /// Skips digits and counts them.
    fn digits(&mut self) -> usize {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        self.at - start
    }

    /// Reads a string, borrowed where it has no escape.
    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        if self.peek() == Some(b'"') {
            let plain = &self.text[start..self.at];
            self.at += 1;
            return Ok(Cow::Borrowed(plain));
        }
        let mut unescaped = String::from(&self.text[start..self.at]);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(unescaped));
                }
                Some(b'\\') => unescaped.push(self.escape()?),
                Some(_) => return Err(self.fault(Kind::ControlCharacter)),
                None => return Err(self.fault(Kind::UnexpectedEnd)),
            }
            let plain = self.at;
            self.skip_plain();
            unescaped.push_str(&self.text[plain..self.at]);
        }
    }

    /// Goes on to the next quote, backslash, control character, or the end.
    fn skip_plain(&mut self) {
        let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < b' ';
        self.at = self.bytes[self.at..].iter().position(special).map_or(self.bytes.len(), |n| self.at + n);
    }

    /// Reads one escape, or the two of a surrogate pair.
    fn escape(&mut self) -> Result<char, Error> {
        let start = self.at;
        let simple = match self.bytes.get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) => return Err(self.fault(Kind::BadEscape)),
            None => return Err(Error::new(self.bytes.len(), Kind::UnexpectedEnd)),
        };
        self.at += 2;
        Ok(simple)
    }

    fn unicode_escape(&mut self) -> Result<char, Error> {
        let start = self.at;
        let lone = Error::new(start, Kind::LoneSurrogate);
        let unit = self.code_unit()?;
        let scalar = match unit {
            0xD800..=0xDBFF => {
                if !self.bytes[self.at..].starts_with(b"\\u") {
                    return Err(lone);
                }
                match self.code_unit()? {
                    low @ 0xDC00..=0xDFFF => 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00),
                    _ => return Err(lone),
                }
            }
            other => other,
        };
        char::from_u32(scalar).ok_or(lone)
    }

    /// Reads `\uXXXX`.
    fn code_unit(&mut self) -> Result<u32, Error> {
        let bad = self.fault(Kind::BadEscape);
        let digits = self.bytes.get(self.at + 2..self.at + 6).ok_or(bad)?;
        let mut unit = 0;
        for digit in digits {
            unit = unit * 16 + char::from(*digit).to_digit(16).ok_or(bad)?;
        }
        self.at += 6;
        Ok(unit)
    }
}

/// Sorts members by name; of two with the same name, refuses the one written later.
fn sort(members: &mut [Member<'_>]) -> Result<(), Error> {
    members.sort_unstable_by(|a, b| utf16_order(&a.name, &b.name).then(a.start.cmp(&b.start)));
    let repeated = members.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| pair[1].start);
    match repeated.min() {
        Some(start) => Err(Error::new(start, Kind::DuplicateName)),
        None => Ok(()),
    }
}
