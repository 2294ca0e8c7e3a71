//! Opens the back end that a URL names.

use super::{Error, Store, postgres, sqlite};
use std::{sync::Arc, time::Duration};

/// Limits of a store. The defaults suit one replica on a small database server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections that write. As many as the database server has cores, 2 to 8: more only split
    /// batches. SQLite always has one writer.
    pub connections: u32,
    /// Connections for lists, histories and due work, so that these cannot hold up writes.
    pub read_connections: u32,
    /// How long a call waits for a free connection, or for a new one.
    pub acquire_timeout: Duration,
    /// How long a statement may run (PostgreSQL).
    pub statement_timeout: Duration,
    /// How long a statement may wait for another one's lock.
    pub lock_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 2,
            read_connections: 2,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
        }
    }
}

/// The back end that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `postgres://` and `postgresql://`
    Postgres,
    /// `sqlite:`
    Sqlite,
}

impl Backend {
    /// Looks at the scheme only.
    ///
    /// # Errors
    /// [`Error::Schema`], with what is possible.
    pub fn of(url: &str) -> Result<Self, Error> {
        match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "postgres" | "postgresql" => Ok(Backend::Postgres),
            "sqlite" => Ok(Backend::Sqlite),
            _ => Err(Error::schema(
                "the database URL must begin with postgres://, postgresql:// or sqlite:// (as in sqlite://opledger.db)",
            )),
        }
    }
}

/// Opens the store that `url` names. Its schema must be there already: see [`super::migrate`].
///
/// # Errors
/// [`Error::Unavailable`] where it cannot be reached now, [`Error::Schema`] where it cannot be used.
pub async fn open(url: &str, settings: &Settings) -> Result<Arc<dyn Store>, Error> {
    Ok(match Backend::of(url)? {
        Backend::Postgres => Arc::new(postgres::connect(url, settings).await?),
        Backend::Sqlite => Arc::new(sqlite::connect(url, settings).await?),
    })
}

/// The URL for people: without password and parameters, which may hold one.
#[must_use]
pub fn redacted(url: &str) -> String {
    let (url, had_parameters) = url.split_once('?').map_or((url, false), |(url, _)| (url, true));
    let end = if had_parameters { "?…" } else { "" };
    let Some((scheme, rest)) = url.split_once("://") else {
        return format!("{url}{end}");
    };
    if scheme == "sqlite" {
        return format!("{url}{end}");
    }
    // The last @: a password may hold one although it should be escaped.
    match rest.rsplit_once('@') {
        Some((login, place)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("{scheme}://{user}@{place}{end}")
        }
        None => format!("{scheme}://{rest}{end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_printed() {
        for (url, expected) in [
            ("postgres://ann:secret@db:5432/ledger", "postgres://ann@db:5432/ledger"),
            ("postgres://ann:se@c:ret@db/ledger?password=secret", "postgres://ann@db/ledger?…"),
            ("postgresql://ann@db/ledger", "postgresql://ann@db/ledger"),
            ("postgres:///ledger?host=/run/postgresql&password=secret", "postgres:///ledger?…"),
            ("sqlite://opledger.db", "sqlite://opledger.db"),
            ("sqlite://a@b:c.db?mode=rw", "sqlite://a@b:c.db?…"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(redacted(url), expected);
        }
    }

    #[test]
    fn the_scheme_names_the_back_end() {
        assert_eq!(Backend::of("postgres://x"), Ok(Backend::Postgres));
        assert_eq!(Backend::of("postgresql://x"), Ok(Backend::Postgres));
        assert_eq!(Backend::of("sqlite://x"), Ok(Backend::Sqlite));
        for url in ["", "mysql://x", "opledger.db", "POSTGRES"] {
            assert!(Backend::of(url).unwrap_err().to_string().contains("sqlite://"), "{url}");
        }
    }
}
