//! SQLite: one writer, a few readers, every commit on the disk before it is acknowledged.
//!
//! A batch is a handful of set-based statements between BEGIN IMMEDIATE and COMMIT. It runs in a
//! task of its own, so that a caller who goes away cannot leave a transaction open; and after any
//! failure the connection is closed, which rolls back what was begun. The file must lie on a disk of
//! this machine: network file systems have neither the locks nor the shared memory that it needs.

mod batch;
mod feed;
mod file;

use super::{
    BoxFuture, Candidate, DecidedAt, Error, FeedChanges, FeedPage, Figure, ListQuery, Listener, Operation,
    PollQuery, Settings, Snapshot, Store, StoredEvent, Swapped, Write, error, migrate, row, row::Cells,
};
use crate::{
    failpoint,
    ledger::{DueKind, Key, Timestamp},
};
use batch::{Batch, Rows};
use file::File;
use sqlx::{
    Column, ConnectOptions, Connection, Row, Sqlite, SqliteConnection, SqlitePool,
    query::Query,
    sqlite::{
        SqliteArguments, SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions,
        SqliteRow, SqliteSynchronous,
    },
};
use std::{
    collections::HashSet,
    path::Path,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

// Several statements in one text: each trip to the connection's thread costs more than most of them.
/// Writes the records; ?1 = inserts, ?2 = updates. Gives the ids of those that were written.
const WRITE: &str = concat!(
    "begin immediate;\n",
    include_str!("sqlite/insert.sql"),
    ";\n",
    include_str!("sqlite/update.sql")
);
/// Writes what follows from them; ?1 = events, ?2 = due work to set, ?3 = to delete.
const COMMIT: &str = concat!(
    include_str!("sqlite/journal.sql"),
    ";\n",
    include_str!("sqlite/due_set.sql"),
    ";\n",
    include_str!("sqlite/due_delete.sql"),
    ";\ncommit"
);
/// Deletes records; ?1 = which. Gives the ids of those that were deleted.
const FORGET_KEY: &str = include_str!("sqlite/forget_key.sql");
/// Deletes what retention no longer keeps; ?1 = payloads, ?2 = events. Goes before what is new is written.
const FORGET: &str =
    concat!(include_str!("sqlite/forget_payload.sql"), ";\n", include_str!("sqlite/forget_events.sql"));
const ROLLBACK: &str = "rollback";
const LOAD: &str = include_str!("sqlite/load.sql");
const LIST: &str = include_str!("sqlite/list.sql");
const DUE: &str = include_str!("sqlite/due.sql");
const POLL_TYPES: &str = include_str!("sqlite/poll_types.sql");
const POLL_DUE: &str = include_str!("sqlite/poll_due.sql");
const POLLED: &str = include_str!("sqlite/polled.sql");
const FIND: &str = include_str!("sqlite/find.sql");
const FIGURES: &str = include_str!("sqlite/figures.sql");
const EVENTS: &str = include_str!("sqlite/events.sql");

/// How long SQLite itself waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pages after which a commit also moves the log into the database file (16 MiB).
const CHECKPOINT_PAGES: &str = "4000";
/// The log is cut back to this size after it has grown behind a long reader.
const LOG_BYTES_MAX: &str = "67108864";
/// A writer's page cache, in KiB.
const WRITER_CACHE: &str = "-16384";

/// A ledger in a SQLite file.
pub struct SqliteStore {
    file: Arc<File>,
    writer: Arc<Writer>,
    loads: SqlitePool,
    reads: SqlitePool,
}

/// Opens the file and checks that it holds this binary's schema. Does not create it: see
/// [`super::migrate`].
///
/// # Errors
/// [`Error::Schema`] where the file cannot be used, [`Error::Unavailable`] where it cannot be read now.
pub async fn connect(url: &str, settings: &Settings) -> Result<SqliteStore, Error> {
    let options = options(url)?;
    if !options.get_filename().exists() {
        return Err(migrate::missing());
    }
    let file = Arc::new(File::at(options.get_filename())?);
    let writer = Writer {
        options: options.clone().pragma("cache_size", WRITER_CACHE),
        slot: Mutex::new(None),
        patience: settings.acquire_timeout,
        file: Arc::clone(&file),
    };
    // The writer first: it may have to recover the log, and says what is wrong with the file.
    let connection = writer.open().await?;
    *writer.slot.lock().await = Some(connection);
    let readers = |connections: u32| {
        SqlitePoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(settings.acquire_timeout)
            .test_before_acquire(false)
            .max_lifetime(None)
            .connect_lazy_with(options.clone().pragma("query_only", "on"))
    };
    let store = SqliteStore {
        file,
        writer: Arc::new(writer),
        loads: readers(settings.connections),
        reads: readers(settings.read_connections),
    };
    store.check().await?;
    Ok(store)
}

/// Opens the file for migrations and creates it where there is none.
pub(super) async fn create(url: &str, deadline: Instant) -> Result<SqliteConnection, Error> {
    let options = options(url)?;
    file::create(options.get_filename())?;
    loop {
        match open(&options).await {
            // Another process is creating the same file just now.
            Err(Error::Unavailable { .. })
                if Instant::now() < deadline && options.get_filename().exists() =>
            {
                sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}

/// The connection options of a URL.
fn options(url: &str) -> Result<SqliteConnectOptions, Error> {
    if url.contains('?') {
        return Err(Error::schema("a SQLite URL takes no parameters: expected sqlite://path/to/file.db"));
    }
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|_| Error::schema("the database URL is not valid: expected sqlite://path/to/file.db"))?;
    let file = options.get_filename().to_owned();
    if file.as_os_str().is_empty() || url.contains(":memory:") {
        return Err(Error::schema(
            "a ledger in memory would forget what it promised: expected sqlite://path/to/file.db",
        ));
    }
    if file.is_dir() {
        return Err(Error::schema(format!("{} is a folder: name a file in it", file.display())));
    }
    if file.exists() && !file.is_file() {
        return Err(Error::schema(format!("{} is no regular file", file.display())));
    }
    if let Some(folder) = file.parent().filter(|folder| *folder != Path::new("") && !folder.is_dir()) {
        return Err(Error::schema(format!(
            "the folder {} does not exist: create it first",
            folder.display()
        )));
    }
    Ok(options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .auto_vacuum(SqliteAutoVacuum::None)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_BYTES_MAX)
        .pragma("temp_store", "memory")
        .pragma("trusted_schema", "off")
        .disable_statement_logging())
}

async fn open(options: &SqliteConnectOptions) -> Result<SqliteConnection, Error> {
    let mut connection = options.connect().await.map_err(|error| Error::of_read(&error))?;
    let mode: String = sqlx::query_scalar("pragma journal_mode")
        .fetch_one(&mut connection)
        .await
        .map_err(|error| Error::of_read(&error))?;
    if mode != "wal" {
        return Err(Error::schema(
            "SQLite cannot keep a write-ahead log beside this file: a network file system, or a folder that may not \
             be written",
        ));
    }
    Ok(connection)
}

/// The machine's clock: the store's clock, as SQLite has none of its own.
fn now() -> Timestamp {
    let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
    };
    Timestamp(micros)
}

/// True where the time that a batch was decided by is this clock's, within the tolerance.
fn agrees(decided: DecidedAt, now: Timestamp) -> bool {
    now.since(decided.now) <= decided.tolerance && decided.now.since(now) <= decided.tolerance
}

/// The one connection that writes.
struct Writer {
    options: SqliteConnectOptions,
    /// Empty after a failure: the next batch opens a new one.
    slot: Mutex<Option<SqliteConnection>>,
    patience: Duration,
    file: Arc<File>,
}

impl Writer {
    async fn open(&self) -> Result<SqliteConnection, Error> {
        open(&self.options).await
    }

    async fn swap(&self, decided: DecidedAt, batch: Batch) -> Result<Swapped, Error> {
        self.file.check()?;
        let mut slot = timeout(self.patience, self.slot.lock())
            .await
            .map_err(|_| Error::unavailable("the writer is busy"))?;
        // Taken out: unless the batch ends well, it is closed, which rolls back.
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let result = write(&mut connection, decided, batch).await;
        if result.is_ok() {
            *slot = Some(connection);
        } else {
            // Waited for: the next batch must find no transaction of this one.
            connection.close().await.ok();
        }
        result
    }
}

/// Runs one batch. Until COMMIT every failure is determinate, because the connection is closed then.
async fn write(
    connection: &mut SqliteConnection,
    decided: DecidedAt,
    batch: Batch,
) -> Result<Swapped, Error> {
    let rows = query(WRITE)
        .bind(batch.inserts.finish())
        .bind(batch.updates.finish())
        .fetch_all(&mut *connection)
        .await
        .map_err(|error| Error::of_read(&error))?;
    let mut ids = written_ids(&rows)?;
    if !batch.deletes.is_empty() {
        let rows = query(FORGET_KEY).bind(batch.deletes.finish()).fetch_all(&mut *connection).await;
        ids.extend(written_ids(&rows.map_err(|error| Error::of_read(&error))?)?);
    }
    // Looked at once the lock is held, and nothing is durable yet.
    let now = now();
    if !agrees(decided, now) {
        ids.clear();
    }
    let written: Vec<bool> = batch.consequences.iter().map(|write| ids.contains(&write.id)).collect();
    if ids.is_empty() {
        query(ROLLBACK).execute(connection).await.map_err(|error| Error::of_read(&error))?;
        return Ok(Swapped { now, written });
    }
    let following = batch::consequences(batch.consequences.iter().filter(|write| ids.contains(&write.id)));
    if !following.forgotten.is_empty() {
        let (payloads, events) = (following.forgotten_payloads.finish(), following.forgotten.finish());
        let forget = query(FORGET).bind(payloads).bind(events).execute(&mut *connection).await;
        forget.map_err(|error| Error::of_read(&error))?;
    }
    failpoint::before_commit();
    query(COMMIT)
        .bind(following.journal.finish())
        .bind(following.due_set.finish())
        .bind(following.due_delete.finish())
        .execute(connection)
        .await
        .map_err(|error| Error::of_write(&error))?;
    failpoint::after_commit();
    Ok(Swapped { now, written })
}

/// The ids of the records that a statement wrote.
fn written_ids(rows: &[SqliteRow]) -> Result<HashSet<Uuid>, Error> {
    rows.iter()
        .map(|row| SqliteCells { row, next: 0 }.id().ok().flatten())
        .collect::<Option<_>>()
        .ok_or_else(|| Error::unavailable("unexpected answer"))
}

fn query(sql: &'static str) -> Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(sql)
}

async fn fetch(
    pool: &SqlitePool,
    query: Query<'static, Sqlite, SqliteArguments>,
) -> Result<Vec<SqliteRow>, Error> {
    query.fetch_all(pool).await.map_err(|error| Error::of_read(&error))
}

/// An array of texts; none where there are none.
fn list<'t>(texts: impl Iterator<Item = &'t str>) -> Option<String> {
    let texts: Vec<&str> = texts.collect();
    (!texts.is_empty()).then(|| serde_json::to_string(&texts).expect("texts are always JSON"))
}

impl SqliteStore {
    /// The action types that a poll asks for: those it names, or all that have work.
    async fn poll_types(&self, asked: &PollQuery) -> Result<Vec<String>, Error> {
        if !asked.action_types.is_empty() {
            return Ok(asked.action_types.clone());
        }
        let query = query(POLL_TYPES).bind(asked.namespace.clone()).bind(asked.kind.as_str());
        let rows = fetch(&self.reads, query).await?;
        rows.iter().map(|row| row.try_get(0).map_err(|error| Error::of_read(&error))).collect()
    }

    async fn poll_type(
        &self,
        asked: &PollQuery,
        action_type: &str,
        limit: u32,
        whenever: bool,
    ) -> Result<Vec<Candidate>, Error> {
        let query = query(POLL_DUE)
            .bind(asked.namespace.clone())
            .bind(asked.kind.as_str())
            .bind(action_type.to_owned())
            .bind(now().0)
            .bind(i64::from(limit))
            .bind(i64::from(whenever));
        let candidate = |row: &SqliteRow| -> Result<Candidate, sqlx::Error> {
            Ok(Candidate {
                due_at: Timestamp(row.try_get(0)?),
                action_type: action_type.into(),
                key: Key::new(row.try_get(1)?, row.try_get(2)?),
            })
        };
        let rows = fetch(&self.reads, query).await?;
        rows.iter().map(|row| candidate(row).map_err(|error| Error::of_read(&error))).collect()
    }
}

impl Store for SqliteStore {
    fn load<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Snapshot, Error>> {
        Box::pin(async move {
            self.file.check()?;
            let mut asked = Rows::default();
            for key in keys {
                asked.row().text(&key.namespace).text(&key.operation_key);
            }
            let found = if keys.is_empty() {
                Vec::new()
            } else {
                fetch(&self.loads, query(LOAD).bind(asked.finish())).await?
            };
            let mut rows = vec![None; keys.len()];
            for row in &found {
                let mut cells = SqliteCells { row, next: 0 };
                let place = cells.integer().ok().flatten().and_then(|place| usize::try_from(place).ok());
                let slot = place.and_then(|place| rows.get_mut(place));
                *slot.ok_or_else(|| Error::unavailable("unexpected answer"))? = row::operation(&mut cells)?;
            }
            Ok(Snapshot { now: now(), rows })
        })
    }

    fn swap<'a>(&'a self, decided: DecidedAt, writes: &'a [Write]) -> BoxFuture<'a, Result<Swapped, Error>> {
        let batch = batch::batch(writes);
        let writer = Arc::clone(&self.writer);
        Box::pin(async move {
            let task = tokio::spawn(async move { writer.swap(decided, batch).await });
            task.await.unwrap_or_else(|_| Err(Error::indeterminate("the task that wrote has ended early")))
        })
    }

    fn due(&self, kind: DueKind, limit: u32) -> BoxFuture<'_, Result<Vec<Key>, Error>> {
        Box::pin(async move {
            let query = query(DUE).bind(kind.as_str()).bind(now().0).bind(i64::from(limit));
            fetch(&self.reads, query).await?.iter().map(key).collect()
        })
    }

    fn poll_due<'a>(
        &'a self,
        asked: &'a PollQuery,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Candidate>, Error>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for action_type in self.poll_types(asked).await? {
                found.extend(self.poll_type(asked, &action_type, limit, false).await?);
            }
            found.sort_by_key(|candidate| candidate.due_at);
            Ok(found)
        })
    }

    fn poll_next<'a>(&'a self, asked: &'a PollQuery) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        Box::pin(async move {
            let mut next: Option<Timestamp> = None;
            for action_type in self.poll_types(asked).await? {
                let first = self.poll_type(asked, &action_type, 1, true).await?;
                next = next.into_iter().chain(first.first().map(|candidate| candidate.due_at)).min();
            }
            Ok(next.map(|next| next.since(now())))
        })
    }

    fn polled<'a>(&'a self, namespace: &'a str, poll_id: Uuid) -> BoxFuture<'a, Result<Vec<Key>, Error>> {
        Box::pin(async move {
            let query = query(POLLED).bind(poll_id.hyphenated().to_string()).bind(namespace.to_owned());
            fetch(&self.reads, query).await?.iter().map(key).collect()
        })
    }

    fn find<'a>(
        &'a self,
        namespace: &'a str,
        operation_id: Uuid,
    ) -> BoxFuture<'a, Result<Option<Key>, Error>> {
        Box::pin(async move {
            let query = query(FIND).bind(operation_id.hyphenated().to_string()).bind(namespace.to_owned());
            fetch(&self.reads, query).await?.first().map(key).transpose()
        })
    }

    fn list<'a>(&'a self, asked: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Operation>, Error>> {
        Box::pin(async move {
            let query = query(LIST)
                .bind(asked.namespace.clone())
                .bind(asked.below.map(|id| id.hyphenated().to_string()))
                .bind(list(asked.statuses.iter().map(|status| status.as_str())))
                .bind(list(asked.action_types.iter().map(String::as_str)))
                .bind(asked.review_required)
                .bind(asked.updated_before.map(|moment| moment.0))
                .bind(asked.updated_after.map(|moment| moment.0))
                .bind(asked.parent_operation_key.clone())
                .bind(row::labels_to_json(&asked.labels))
                .bind(i64::from(asked.limit));
            let rows = fetch(&self.reads, query).await?;
            let operations = rows.iter().map(|row| row::operation(&mut SqliteCells { row, next: 0 }));
            operations.filter_map(Result::transpose).collect()
        })
    }

    fn events<'a>(
        &'a self,
        key: &'a Key,
        after_sequence: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, Error>> {
        Box::pin(async move {
            let query = query(EVENTS)
                .bind(key.namespace.to_string())
                .bind(key.operation_key.to_string())
                .bind(after_sequence)
                .bind(i64::from(limit.max(1)));
            let rows = fetch(&self.reads, query).await?;
            if rows.is_empty() {
                return Ok(None);
            }
            let events = rows.iter().map(|row| row::event(&mut SqliteCells { row, next: 0 }, key));
            events.filter_map(Result::transpose).collect::<Result<_, _>>().map(Some)
        })
    }

    fn feed<'a>(
        &'a self,
        namespace: &'a str,
        after_sequence: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<FeedPage, Error>> {
        Box::pin(self.feed_page(namespace, after_sequence, limit))
    }

    fn feed_changes(&self, after_sequence: i64, limit: u32) -> BoxFuture<'_, Result<FeedChanges, Error>> {
        Box::pin(self.feed_keys(after_sequence, limit))
    }

    fn feed_end(&self) -> BoxFuture<'_, Result<i64, Error>> {
        Box::pin(self.feed_last())
    }

    fn announce<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>, Error>> {
        Box::pin(async { Ok(None) })
    }

    fn figures(&self) -> BoxFuture<'_, Result<Vec<Figure>, Error>> {
        Box::pin(async move {
            let rows = fetch(&self.reads, query(FIGURES).bind(now().0)).await?;
            rows.iter().map(|row| row::figure(&mut SqliteCells { row, next: 0 })).collect()
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.file.check()?;
            let rows = match query(migrate::SQLITE_APPLIED).fetch_all(&self.reads).await {
                Err(error) if error::is_missing_table(&error) => return Err(migrate::missing()),
                rows => rows.map_err(|error| Error::of_read(&error))?,
            };
            let applied = rows.iter().map(|row| -> Result<_, sqlx::Error> {
                Ok(migrate::Applied { version: row.try_get(0)?, checksum: row.try_get(1)? })
            });
            let applied: Vec<_> =
                applied.collect::<Result<_, _>>().map_err(|error| Error::of_read(&error))?;
            migrate::compare(&migrate::SQLITE, &applied)
        })
    }
}

fn key(row: &SqliteRow) -> Result<Key, Error> {
    let read = || -> Result<Key, sqlx::Error> { Ok(Key::new(row.try_get(0)?, row.try_get(1)?)) };
    read().map_err(|error| Error::of_read(&error))
}

/// A row of SQLite, read from left to right.
struct SqliteCells<'r> {
    row: &'r SqliteRow,
    next: usize,
}

impl SqliteCells<'_> {
    fn get<T>(&mut self) -> Result<Option<T>, sqlx::Error>
    where
        for<'r> T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
    {
        self.next += 1;
        self.row.try_get(self.next - 1)
    }
}

impl Cells for SqliteCells<'_> {
    fn text(&mut self) -> Result<Option<String>, sqlx::Error> {
        self.get()
    }

    fn integer(&mut self) -> Result<Option<i64>, sqlx::Error> {
        self.get()
    }

    fn count(&mut self) -> Result<Option<i32>, sqlx::Error> {
        self.get()
    }

    fn flag(&mut self) -> Result<Option<bool>, sqlx::Error> {
        self.get()
    }

    fn moment(&mut self) -> Result<Option<Timestamp>, sqlx::Error> {
        Ok(self.get::<i64>()?.map(Timestamp))
    }

    fn id(&mut self) -> Result<Option<Uuid>, sqlx::Error> {
        let text = self.get::<String>()?;
        text.map(|text| Uuid::parse_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))).transpose()
    }

    fn bytes(&mut self) -> Result<Option<Vec<u8>>, sqlx::Error> {
        self.get()
    }

    fn last_column(&self) -> String {
        self.row
            .columns()
            .get(self.next.saturating_sub(1))
            .map_or_else(String::new, |column| column.name().to_owned())
    }
}
