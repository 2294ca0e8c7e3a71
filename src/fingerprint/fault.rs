//! What is wrong with a text, where, and what to do about it. Never quotes the text.

use std::fmt;

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It begins with U+FEFF.
    ByteOrderMark,
    /// It ends too early, or is empty.
    UnexpectedEnd,
    /// Something else should be here.
    Expected(&'static str),
    /// There is more after the value.
    TrailingText,
    /// Arrays and objects are nested too deeply.
    TooDeep,
    /// An object has two members of this name.
    DuplicateName,
    /// A string holds a control character that is not escaped.
    ControlCharacter,
    /// A backslash is followed by what is no escape.
    BadEscape,
    /// Half of a surrogate pair stands alone.
    LoneSurrogate,
    /// It is no JSON number.
    BadNumber,
    /// Its magnitude is larger than any double's.
    NumberTooLarge,
    /// Its value is an integer beyond ±(2^53 − 1).
    UnsafeInteger,
    /// A double carries another value than the text says.
    InexactNumber,
    /// It is no integer, and the policy takes only integers.
    Fraction,
}

impl Kind {
    fn message(self) -> &'static str {
        match self {
            Kind::ByteOrderMark => "the text begins with a byte-order mark: send it without",
            Kind::UnexpectedEnd => "the text ends where more was expected: send one complete JSON value",
            Kind::Expected(what) => what,
            Kind::TrailingText => "there is more text after the value: send one JSON value and nothing else",
            Kind::TooDeep => "arrays and objects are nested more than 127 levels deep: send a flatter value",
            Kind::DuplicateName => {
                "duplicate member name (escapes count as what they stand for): send each name once in an object"
            }
            Kind::ControlCharacter => {
                "control character in a string: send it escaped, such as \\n or \\u0000"
            }
            Kind::BadEscape => {
                "unknown escape in a string: only \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four \
                 hexadecimal digits are allowed"
            }
            Kind::LoneSurrogate => {
                "lone surrogate in a string: send the whole pair, or the character itself; other bytes may \
                 be sent as base64"
            }
            Kind::BadNumber => {
                "not a JSON number (no leading zeros, no '+', no NaN or Infinity, digits on both sides of \
                 the point): write it so, or send it as a string"
            }
            Kind::NumberTooLarge => "number beyond the range of a double: send it as a string",
            Kind::UnsafeInteger => {
                "integer beyond +-(2^53 - 1), which some readers would round: send it as a string"
            }
            Kind::InexactNumber => {
                "number that a double does not carry exactly as written, so that some readers would take \
                 another one: write the shortest decimal, or send it as a string"
            }
            Kind::Fraction => {
                "number that is not an integer, which the policy of this action type refuses: send minor \
                 units as an integer, or send it as a string"
            }
        }
    }
}

/// A refused text: what is wrong and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes before the place, from 0.
    pub offset: usize,
    /// The line of the place, from 1.
    pub line: u32,
    /// The column of the place in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub kind: Kind,
}

impl Fault {
    /// What is wrong and what to do about it, without the place.
    #[must_use]
    pub fn message(&self) -> &'static str {
        self.kind.message()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at line {}, column {}: {}", self.line, self.column, self.message())
    }
}

impl std::error::Error for Fault {}

/// A fault whose line and column have not been counted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Error {
    pub offset: usize,
    pub kind: Kind,
}

impl Error {
    pub fn new(offset: usize, kind: Kind) -> Self {
        Self { offset, kind }
    }

    /// Counts lines and columns: only once something is wrong.
    pub fn locate(self, text: &str) -> Fault {
        // The reader works on bytes, but stops at characters only; the floor is for safety.
        let before = &text[..text.floor_char_boundary(self.offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |n: usize| u32::try_from(n + 1).unwrap_or(u32::MAX);
        Fault {
            offset: self.offset,
            line: count(before.matches('\n').count()),
            column: count(before[line_start..].chars().count()),
            kind: self.kind,
        }
    }
}
