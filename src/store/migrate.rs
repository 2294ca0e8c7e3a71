//! The schema: embedded migrations, applied under a lock, and refused where they do not fit.

use super::{Backend, Error, error, postgres, sqlite};
use sqlx::{
    Connection, PgConnection, SqliteConnection,
    migrate::{Migrate, MigrateError, Migrator},
};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long to wait for another process that migrates the same database.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// How often to look whether it has finished.
const LOCK_POLL: Duration = Duration::from_millis(100);
/// How long to wait for the first connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// "opledger", as a number: names the advisory lock.
const LOCK_KEY: i64 = 0x6f70_6c65_6467_6572;

/// Where sqlx remembers what was applied.
const TABLE: &str = "_sqlx_migrations";

/// The migrations that the database has seen; for both back ends.
pub(super) const POSTGRES_APPLIED: &str = include_str!("postgres/applied.sql");
pub(super) const SQLITE_APPLIED: &str = include_str!("sqlite/applied.sql");

// Their texts only: the lock is taken here, with a time-out; sqlx's own would wait for ever.
pub(super) static POSTGRES: Migrator = sqlx::migrate!("migrations/postgres");
pub(super) static SQLITE: Migrator = sqlx::migrate!("migrations/sqlite");

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The schema's version before; none where there was no ledger.
    pub before: Option<i64>,
    /// The schema's version now.
    pub after: i64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.before {
            None => write!(f, "schema created at version {}", self.after),
            Some(before) if before == self.after => write!(f, "schema is up to date at version {before}"),
            Some(before) => write!(f, "schema brought from version {before} to {}", self.after),
        }
    }
}

/// A migration as the database remembers it.
pub(super) struct Applied {
    pub(super) version: i64,
    pub(super) checksum: Vec<u8>,
}

/// Brings the database that `url` names to this binary's schema, all or nothing; a SQLite file is
/// created where there is none. Any number of processes may try at once.
///
/// # Errors
/// [`Error::Schema`] where the schema is newer than this binary or was changed, with the remedy;
/// [`Error::Unavailable`] where the database does not answer or another process holds the lock too long.
pub async fn migrate(url: &str) -> Result<Report, Error> {
    match Backend::of(url)? {
        Backend::Postgres => {
            let options = postgres::options(url)?;
            let connect = PgConnection::connect_with(&options);
            let mut connection = timeout(CONNECT_PATIENCE, connect)
                .await
                .map_err(|_| Error::unavailable(format!("no connection within {CONNECT_PATIENCE:?}")))?
                .map_err(|error| Error::of_read(&error))?;
            let result = migrate_postgres(&mut connection).await;
            connection.close().await.ok();
            result
        }
        Backend::Sqlite => {
            let mut connection = sqlite::create(url, Instant::now() + LOCK_PATIENCE).await?;
            let result = migrate_sqlite(&mut connection).await;
            connection.close().await.ok();
            result
        }
    }
}

/// Succeeds where the schema is this binary's.
///
/// # Errors
/// As [`migrate`]; [`Error::Schema`] also where there is something to migrate.
pub async fn check_schema(url: &str) -> Result<(), Error> {
    super::open(url, &super::Settings::default()).await.map(|_| ())
}

async fn migrate_postgres(connection: &mut PgConnection) -> Result<Report, Error> {
    if let Some(report) = up_to_date(&POSTGRES, &applied_postgres(connection).await?)? {
        return Ok(report);
    }
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        // Tried, not waited for: a waiting transaction would hold up an index built concurrently.
        let mut transaction = connection.begin().await.map_err(|error| Error::of_read(&error))?;
        let locked: bool = sqlx::query_scalar("select pg_try_advisory_xact_lock($1)")
            .bind(LOCK_KEY)
            .fetch_one(&mut *transaction)
            .await
            .map_err(|error| Error::of_read(&error))?;
        if locked {
            let applied = applied_postgres(&mut transaction).await?;
            if let Some(report) = up_to_date(&POSTGRES, &applied)? {
                return Ok(report);
            }
            sqlx::query("set local lock_timeout = '30s'")
                .execute(&mut *transaction)
                .await
                .map_err(|error| Error::of_read(&error))?;
            apply(&mut *transaction, &POSTGRES, applied.len()).await?;
            transaction.commit().await.map_err(|error| Error::of_write(&error))?;
            return Ok(report(&POSTGRES, &applied));
        }
        transaction.rollback().await.map_err(|error| Error::of_read(&error))?;
        if Instant::now() >= deadline {
            let holder: Option<String> = sqlx::query_scalar(include_str!("postgres/migrating.sql"))
                .bind(LOCK_KEY)
                .fetch_optional(&mut *connection)
                .await
                .unwrap_or_default();
            let holder = holder.unwrap_or_else(|| "unknown".to_owned());
            return Err(Error::unavailable(format!(
                "another process has been migrating this database for {LOCK_PATIENCE:?} ({holder}); \
                 wait for it, or end that connection if it hangs"
            )));
        }
        sleep(LOCK_POLL).await;
    }
}

async fn applied_postgres(connection: &mut PgConnection) -> Result<Vec<Applied>, Error> {
    // Asked first, because a failed statement would end the transaction.
    let exists: bool = sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| Error::of_read(&error))?;
    if !exists {
        return Ok(Vec::new());
    }
    let rows: Vec<(i64, Vec<u8>, bool)> = sqlx::query_as(POSTGRES_APPLIED)
        .fetch_all(&mut *connection)
        .await
        .map_err(|error| Error::of_read(&error))?;
    if rows.iter().any(|(_, _, read_only)| *read_only) {
        return Err(Error::unavailable("the server is a standby or read-only: connect to the primary"));
    }
    Ok(rows.into_iter().map(|(version, checksum, _)| Applied { version, checksum }).collect())
}

async fn migrate_sqlite(connection: &mut SqliteConnection) -> Result<Report, Error> {
    if let Some(report) = up_to_date(&SQLITE, &applied_sqlite(connection).await?)? {
        return Ok(report);
    }
    let deadline = Instant::now() + LOCK_PATIENCE;
    let mut transaction = loop {
        // The driver waits a while for the lock by itself.
        match connection.begin_with("BEGIN IMMEDIATE").await {
            Ok(transaction) => break transaction,
            Err(error) if error::is_busy(&error) && Instant::now() < deadline => sleep(LOCK_POLL).await,
            Err(error) => return Err(Error::of_read(&error)),
        }
    };
    let applied = applied_sqlite(&mut transaction).await?;
    if let Some(report) = up_to_date(&SQLITE, &applied)? {
        return Ok(report);
    }
    apply(&mut *transaction, &SQLITE, applied.len()).await?;
    transaction.commit().await.map_err(|error| Error::of_write(&error))?;
    Ok(report(&SQLITE, &applied))
}

async fn applied_sqlite(connection: &mut SqliteConnection) -> Result<Vec<Applied>, Error> {
    let rows: Result<Vec<(i64, Vec<u8>)>, sqlx::Error> =
        sqlx::query_as(SQLITE_APPLIED).fetch_all(connection).await;
    match rows {
        Ok(rows) => Ok(rows.into_iter().map(|(version, checksum)| Applied { version, checksum }).collect()),
        Err(error) if error::is_missing_table(&error) => Ok(Vec::new()),
        Err(error) => Err(Error::of_read(&error)),
    }
}

/// Applies the migrations after the first `done`, which were checked to be this binary's first ones.
async fn apply<C: Migrate>(connection: &mut C, known: &Migrator, done: usize) -> Result<(), Error> {
    connection.ensure_migrations_table(TABLE).await.map_err(|error| failed(&error))?;
    for migration in known.iter().skip(done) {
        connection.apply(TABLE, migration).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn failed(error: &MigrateError) -> Error {
    match error {
        MigrateError::Execute(error) => Error::of_read(error),
        MigrateError::ExecuteMigration(error, version) => Error::schema(format!(
            "migration {version} failed and nothing was changed: {}",
            error::describe(error)
        )),
        // All that these say was checked before.
        other => Error::schema(format!("the schema cannot be migrated: {other}")),
    }
}

fn report(known: &Migrator, applied: &[Applied]) -> Report {
    Report { before: applied.last().map(|applied| applied.version), after: newest(known) }
}

fn newest(known: &Migrator) -> i64 {
    known.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// The report where nothing is left to do; none where there is.
fn up_to_date(known: &Migrator, applied: &[Applied]) -> Result<Option<Report>, Error> {
    fits(known, applied)?;
    Ok((applied.len() == known.iter().count()).then(|| report(known, applied)))
}

/// Refuses a schema whose migrations are not the first ones of this binary, unchanged.
fn fits(known: &Migrator, applied: &[Applied]) -> Result<(), Error> {
    for (place, applied) in applied.iter().enumerate() {
        if applied.version > newest(known) {
            return Err(Error::schema(format!(
                "the database's schema ({}) is newer than this binary's ({}): run the newer opledger, \
                 or restore the backup that was taken before the upgrade",
                applied.version,
                newest(known)
            )));
        }
        let same = known.iter().nth(place).is_some_and(|migration| {
            migration.version == applied.version && *migration.checksum == *applied.checksum
        });
        if !same {
            return Err(Error::schema(format!(
                "migration {} in the database is not the one in this binary: it was applied by a changed or \
                 unreleased build; run the build that applied it, or restore a backup",
                applied.version
            )));
        }
    }
    Ok(())
}

/// Succeeds where the schema is exactly this binary's.
pub(super) fn compare(known: &Migrator, applied: &[Applied]) -> Result<(), Error> {
    fits(known, applied)?;
    match applied.last() {
        None => Err(missing()),
        Some(last) if applied.len() < known.iter().count() => Err(Error::schema(format!(
            "the database's schema ({}) is older than this binary's ({}): run `opledger migrate`",
            last.version,
            newest(known)
        ))),
        Some(_) => Ok(()),
    }
}

/// There is no ledger in the database.
pub(super) fn missing() -> Error {
    Error::schema("there is no ledger in the database yet: run `opledger migrate`")
}
