//! What can go wrong in a store, told apart by what the caller must know: may it have happened?

use sqlx::{
    error::DatabaseError,
    postgres::{PgDatabaseError, PgSeverity},
};
use std::fmt;

/// A failure of the store. Messages name places (tables, constraints, codes), never values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Surely not done; may work later.
    Unavailable {
        /// For people.
        message: String,
    },
    /// May have been done: the connection broke, or the answer did not come in time.
    Indeterminate {
        /// For people.
        message: String,
    },
    /// Surely not done: the database refuses a value, and will refuse it again.
    Data {
        /// For people.
        message: String,
    },
    /// A stored row makes no sense.
    Corrupt {
        /// Where.
        table: &'static str,
        /// Which column.
        column: String,
        /// Which row.
        key: String,
    },
    /// The database is not what this binary works with.
    Schema {
        /// For people, with the remedy.
        message: String,
    },
}

impl Error {
    /// True where the change may have happened all the same.
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, Error::Indeterminate { .. })
    }

    /// True where the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Indeterminate { .. })
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Error::Unavailable { message: message.into() }
    }

    pub(crate) fn indeterminate(message: impl Into<String>) -> Self {
        Error::Indeterminate { message: message.into() }
    }

    pub(crate) fn data(message: impl Into<String>) -> Self {
        Error::Data { message: message.into() }
    }

    pub(crate) fn schema(message: impl Into<String>) -> Self {
        Error::Schema { message: message.into() }
    }

    /// A failure of something that changes nothing, or that surely was rolled back.
    pub(crate) fn of_read(error: &sqlx::Error) -> Self {
        let message = describe(error);
        match cause(error) {
            Cause::Data => Error::Data { message },
            Cause::Schema => Error::Schema { message },
            Cause::Refused | Cause::Broken => Error::Unavailable { message },
        }
    }

    /// A failure of a statement that commits by itself, or of a commit: what is not known to have
    /// been rolled back may have happened.
    pub(crate) fn of_write(error: &sqlx::Error) -> Self {
        match cause(error) {
            Cause::Broken => Error::Indeterminate { message: describe(error) },
            Cause::Data | Cause::Schema | Cause::Refused => Self::of_read(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unavailable { message } => write!(f, "the store is unavailable: {message}"),
            Error::Indeterminate { message } => {
                write!(f, "the store did not answer, the change may have happened: {message}")
            }
            Error::Data { message } => write!(f, "the store refuses a value: {message}"),
            Error::Corrupt { table, column, key } => {
                write!(f, "the stored {table}.{column} of {key} makes no sense")
            }
            Error::Schema { message } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// SQLSTATE codes and classes of PostgreSQL that mean something to us.
mod sqlstate {
    /// Class: a value that its type does not take.
    pub const DATA_EXCEPTION: &str = "22";
    /// Class: a value that a constraint refuses.
    pub const INTEGRITY: &str = "23";
    /// Class: a value that is too large.
    pub const PROGRAM_LIMIT: &str = "54";
    /// Class: no disk, no memory, no free connection.
    pub const INSUFFICIENT_RESOURCES: &str = "53";
    /// Class: an unknown table or column, a missing privilege.
    pub const SYNTAX_OR_ACCESS: &str = "42";
    /// Class: name or password refused.
    pub const AUTHORIZATION: &str = "28";
    /// No such database.
    pub const NO_DATABASE: &str = "3D000";
    /// No such schema.
    pub const NO_SCHEMA: &str = "3F000";
    /// Two transactions of a serializable database met.
    pub const SERIALIZATION: &str = "40001";
    /// A deadlock was broken by ending this transaction.
    pub const DEADLOCK: &str = "40P01";
    /// `lock_timeout` ran out.
    pub const LOCK_TIMEOUT: &str = "55P03";
    /// `statement_timeout` ran out, or somebody cancelled the statement.
    pub const CANCELLED: &str = "57014";
    /// This is a standby: a connection from before a switch-over.
    pub const READ_ONLY: &str = "25006";
    /// The server is starting up or shutting down.
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
}

/// Primary result codes of SQLite that mean something to us.
mod sqlite_code {
    /// Another connection holds the lock.
    pub const BUSY: i32 = 5;
    /// No memory.
    pub const NO_MEMORY: i32 = 7;
    /// The file or its folder may not be written.
    pub const READ_ONLY: i32 = 8;
    /// The disk failed.
    pub const IO: i32 = 10;
    /// The file is damaged.
    pub const CORRUPT: i32 = 11;
    /// The disk is full.
    pub const FULL: i32 = 13;
    /// The file cannot be opened.
    pub const CANNOT_OPEN: i32 = 14;
    /// A value is too large.
    pub const TOO_BIG: i32 = 18;
    /// A constraint refuses a value.
    pub const CONSTRAINT: i32 = 19;
    /// A value has the wrong type.
    pub const MISMATCH: i32 = 20;
    /// The file is no database.
    pub const NOT_A_DATABASE: i32 = 26;
    /// An unknown table or column, or a statement that fails while it runs.
    pub const GENERIC: i32 = 1;
}

/// What an error means for the change that it interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Rolled back; a value is at fault.
    Data,
    /// Rolled back; tables or privileges are at fault.
    Schema,
    /// Rolled back; may work later on the same connection.
    Refused,
    /// Anything else: nothing is known.
    Broken,
}

/// Only what is listed here counts as surely rolled back.
fn cause(error: &sqlx::Error) -> Cause {
    match error {
        sqlx::Error::Encode(_) => Cause::Data,
        sqlx::Error::Database(error) => match error.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => postgres_cause(error),
            None => sqlite_cause(sqlite_code(error.as_ref())),
        },
        _ => Cause::Broken,
    }
}

fn postgres_cause(error: &PgDatabaseError) -> Cause {
    if error.severity() != PgSeverity::Error {
        return Cause::Broken;
    }
    let code = error.code();
    match code {
        sqlstate::SERIALIZATION
        | sqlstate::DEADLOCK
        | sqlstate::LOCK_TIMEOUT
        | sqlstate::CANCELLED
        | sqlstate::READ_ONLY => Cause::Refused,
        sqlstate::NO_SCHEMA => Cause::Schema,
        _ => match code.get(..2).unwrap_or("") {
            sqlstate::DATA_EXCEPTION | sqlstate::INTEGRITY | sqlstate::PROGRAM_LIMIT => Cause::Data,
            sqlstate::SYNTAX_OR_ACCESS => Cause::Schema,
            sqlstate::INSUFFICIENT_RESOURCES => Cause::Refused,
            _ => Cause::Broken,
        },
    }
}

fn sqlite_cause(code: i32) -> Cause {
    match code {
        sqlite_code::TOO_BIG | sqlite_code::CONSTRAINT | sqlite_code::MISMATCH => Cause::Data,
        sqlite_code::GENERIC | sqlite_code::NOT_A_DATABASE => Cause::Schema,
        sqlite_code::BUSY | sqlite_code::READ_ONLY | sqlite_code::FULL | sqlite_code::NO_MEMORY => {
            Cause::Refused
        }
        _ => Cause::Broken,
    }
}

/// The primary result code; the driver gives the extended one, as text.
fn sqlite_code(error: &dyn DatabaseError) -> i32 {
    error.code().and_then(|code| code.parse::<i32>().ok()).map_or(0, |code| code & 0xff)
}

/// True where the connection must not be used again after this error.
pub(crate) fn breaks_connection(error: &sqlx::Error) -> bool {
    let read_only = matches!(error, sqlx::Error::Database(error) if error.code().is_some_and(|code| code == sqlstate::READ_ONLY));
    read_only || cause(error) == Cause::Broken
}

/// True where SQLite says that another connection holds the lock.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if sqlite_code(error.as_ref()) == sqlite_code::BUSY)
}

/// True where a table is missing.
pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    match error.try_downcast_ref::<PgDatabaseError>() {
        Some(error) => error.code() == "42P01",
        None => {
            sqlite_code(error.as_ref()) == sqlite_code::GENERIC
                && error.message().starts_with("no such table")
        }
    }
}

/// What happened, for people, without any value: the database's own words only where they cannot
/// carry one.
pub(crate) fn describe(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => describe_postgres(error),
            None => describe_sqlite(error.as_ref()),
        },
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Tls(error) => format!("TLS: {error}"),
        sqlx::Error::Encode(_) => "a value cannot be encoded".into(),
        sqlx::Error::ColumnDecode { index, .. } => format!("column {index} cannot be decoded"),
        sqlx::Error::PoolTimedOut => "no connection became free in time".into(),
        sqlx::Error::WorkerCrashed => "the connection's thread ended".into(),
        sqlx::Error::Protocol(_) => "the answer does not follow the protocol".into(),
        sqlx::Error::Configuration(_) => "the database URL is not valid".into(),
        _ => "unexpected answer".into(),
    }
}

fn describe_postgres(error: &PgDatabaseError) -> String {
    let code = error.code();
    let class = code.get(..2).unwrap_or("");
    let carries_no_value = class == sqlstate::AUTHORIZATION
        || class == sqlstate::INSUFFICIENT_RESOURCES
        || class == sqlstate::SYNTAX_OR_ACCESS
        || matches!(
            code,
            sqlstate::NO_DATABASE
                | sqlstate::NO_SCHEMA
                | sqlstate::LOCK_TIMEOUT
                | sqlstate::CANCELLED
                | sqlstate::READ_ONLY
                | sqlstate::CANNOT_CONNECT_NOW
                | sqlstate::DEADLOCK
        );
    let mut text = if carries_no_value {
        format!("{} (SQLSTATE {code})", error.message())
    } else {
        format!("SQLSTATE {code}")
    };
    for (name, place) in
        [("table", error.table()), ("column", error.column()), ("constraint", error.constraint())]
    {
        if let Some(place) = place {
            text.push_str(&format!(", {name} {place}"));
        }
    }
    text
}

/// SQLite's messages name tables, columns and conditions; only those of a failed conversion quote.
fn describe_sqlite(error: &dyn DatabaseError) -> String {
    match sqlite_code(error) {
        sqlite_code::BUSY => "another process holds the database's lock".into(),
        sqlite_code::READ_ONLY => "the database file or its folder may not be written".into(),
        sqlite_code::IO => "the disk reports an error".into(),
        sqlite_code::CORRUPT => "the database file is damaged; restore it from a backup".into(),
        sqlite_code::FULL => "the disk is full".into(),
        sqlite_code::CANNOT_OPEN => "the database file cannot be opened".into(),
        sqlite_code::NOT_A_DATABASE => "the file is not a SQLite database; it is left as it is".into(),
        sqlite_code::CONSTRAINT | sqlite_code::GENERIC => error.message().to_owned(),
        code => format!("SQLite code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_may_have_happened() {
        let lost = sqlx::Error::Io(std::io::Error::other("reset"));
        assert!(Error::of_write(&lost).is_indeterminate());
        assert!(!Error::of_read(&lost).is_indeterminate());
        assert!(Error::of_read(&lost).is_retryable());
        assert!(breaks_connection(&lost));
        let refused = sqlx::Error::Encode("x".into());
        assert_eq!(Error::of_write(&refused), Error::of_read(&refused));
        assert!(!Error::of_write(&refused).is_retryable());
    }
}
