//! PostgreSQL: binds and runs; no rule of the ledger is in the SQL.
//!
//! A batch is one statement that commits by itself: no transaction is held open over a round trip.
//! Every statement runs in a task of its own, so that a caller who goes away cannot leave one half
//! way.

mod bind;
mod feed;
mod lanes;
mod listen;

use super::{
    BoxFuture, Candidate, DecidedAt, Error, FeedChanges, FeedPage, Figure, ListQuery, Listener, PollQuery,
    Settings, Snapshot, Store, StoredEvent, Swapped, Write, error, migrate, row, row::Cells,
};
use crate::{
    failpoint,
    ledger::{DueKind, Key, Timestamp},
};
use bind::Moment;
use lanes::Lanes;
use sqlx::{
    Column, ConnectOptions, Postgres, Row,
    postgres::{PgArguments, PgBindIterExt, PgConnectOptions, PgRow},
    query::Query,
};
use std::{
    collections::HashSet,
    future::Future,
    str::FromStr,
    sync::{Arc, LazyLock},
    time::Duration,
};
use uuid::Uuid;

/// For batches that forget something.
const SWAP_AND_FORGET: &str = include_str!("postgres/swap.sql");
/// For all others: the same without what forgets.
static SWAP: LazyLock<String> = LazyLock::new(|| without_forgetting(SWAP_AND_FORGET));
const LOAD: &str = include_str!("postgres/load.sql");
const LIST: &str = include_str!("postgres/list.sql");
const DUE: &str = include_str!("postgres/due.sql");
const POLL_DUE: &str = include_str!("postgres/poll_due.sql");
const POLL_NEXT: &str = include_str!("postgres/poll_next.sql");
const POLLED: &str = include_str!("postgres/polled.sql");
const FIND: &str = include_str!("postgres/find.sql");
const FIGURES: &str = include_str!("postgres/figures.sql");
const EVENTS: &str = include_str!("postgres/events.sql");
const SETTINGS: &str = include_str!("postgres/settings.sql");

/// How much longer than the server's own time-out an answer may take before the connection counts
/// as dead.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// The oldest version that the statements were written for.
const OLDEST_SERVER: i32 = 150_000;

/// A ledger in PostgreSQL.
pub struct PostgresStore {
    writes: Arc<Lanes>,
    reads: Arc<Lanes>,
    announcements: Arc<Lanes>,
    listening: PgConnectOptions,
    answer_timeout: Duration,
}

/// Connects, and checks that the server's version, its schema and its durability will do.
///
/// # Errors
/// [`Error::Unavailable`] where the server does not answer, [`Error::Schema`] where it will not do.
pub async fn connect(url: &str, settings: &Settings) -> Result<PostgresStore, Error> {
    let options = options(url)?;
    let store = PostgresStore {
        writes: Lanes::new(
            "write",
            for_writes(options.clone(), settings),
            settings.connections,
            settings.acquire_timeout,
        ),
        // One of its own: an announcement must not take the place of a batch.
        announcements: Lanes::new(
            "announcement",
            with_limits(options.clone(), settings),
            1,
            settings.acquire_timeout,
        ),
        listening: with_limits(options.clone(), settings),
        reads: Lanes::new(
            "read",
            for_reads(options, settings),
            settings.read_connections,
            settings.acquire_timeout,
        ),
        answer_timeout: settings.statement_timeout + ANSWER_GRACE,
    };
    store.check_server().await?;
    store.check().await?;
    store.keep_sequence_growing().await?;
    Ok(store)
}

/// The connection options of a URL, without statement logging: logs must not hold values.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, Error> {
    let options = PgConnectOptions::from_str(url).map_err(|_| {
        Error::schema("the database URL is not valid: expected postgres://user:password@host:port/database")
    })?;
    let options =
        if options.get_application_name().is_none() { options.application_name("opledger") } else { options };
    Ok(options.disable_statement_logging())
}

/// Limits that the server itself keeps, also when this process has gone.
fn with_limits(options: PgConnectOptions, settings: &Settings) -> PgConnectOptions {
    options.options([
        ("statement_timeout", settings.statement_timeout.as_millis().to_string()),
        ("lock_timeout", settings.lock_timeout.as_millis().to_string()),
        ("idle_in_transaction_session_timeout", "10000".to_owned()),
        // The server notices a client that vanished, and drops its locks.
        ("tcp_keepalives_idle", "30".to_owned()),
        ("tcp_keepalives_interval", "10".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
        ("client_min_messages", "warning".to_owned()),
    ])
}

/// One plan for every batch, and only ever through the keys: the planner guesses ten rows for an
/// array, and statistics of an almost empty table would talk it into reading it as a whole.
fn for_writes(options: PgConnectOptions, settings: &Settings) -> PgConnectOptions {
    with_limits(options, settings).options([
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
        ("enable_mergejoin", "off"),
        ("jit", "off"),
    ])
}

/// A plan of its own for each list: which filters are set decides which index serves. Never more
/// than one process of the server.
fn for_reads(options: PgConnectOptions, settings: &Settings) -> PgConnectOptions {
    with_limits(options, settings).options([
        ("plan_cache_mode", "force_custom_plan"),
        ("enable_seqscan", "off"),
        // A bitmap has no order: it would read a whole backlog for its head.
        ("enable_bitmapscan", "off"),
        ("max_parallel_workers_per_gather", "0"),
        ("jit", "off"),
    ])
}

impl PostgresStore {
    /// Runs one statement on a connection of `lanes`, in a task that outlives its caller.
    fn run(
        &self,
        lanes: &Arc<Lanes>,
        request: Request,
    ) -> impl Future<Output = Result<Vec<PgRow>, Error>> + Send + use<> {
        let lanes = Arc::clone(lanes);
        let answer_timeout = self.answer_timeout;
        async move {
            let writes = request.writes;
            let task = tokio::spawn(request.run(lanes, answer_timeout));
            match task.await {
                Ok(result) => result,
                Err(_) if writes => Err(Error::indeterminate("the task that wrote has ended early")),
                Err(_) => Err(Error::unavailable("the task that read has ended early")),
            }
        }
    }

    async fn check_server(&self) -> Result<(), Error> {
        let rows = self.run(&self.reads, Request::read(SETTINGS, PgArguments::default())).await?;
        let row = rows.first().ok_or_else(|| Error::unavailable("the server gave no settings"))?;
        let (version, synchronous, fsync, full_page_writes): (i32, String, String, String) =
            (|| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)))()
                .map_err(|error| Error::of_read(&error))?;
        let read_only: bool = row.try_get(4).map_err(|error| Error::of_read(&error))?;
        if version < OLDEST_SERVER {
            return Err(Error::schema(format!(
                "the server is PostgreSQL {}, opledger needs 15 or later",
                version / 10_000
            )));
        }
        if read_only {
            return Err(Error::unavailable("the server is a standby or read-only: connect to the primary"));
        }
        for (setting, value) in
            [("synchronous_commit", synchronous), ("fsync", fsync), ("full_page_writes", full_page_writes)]
        {
            if value == "off" {
                tracing::warn!(
                    setting,
                    value,
                    "the database may lose acknowledged changes in a crash: {setting} is off"
                );
            }
        }
        Ok(())
    }
}

/// `swap.sql` without the parts that only a batch which forgets something needs.
fn without_forgetting(sql: &str) -> String {
    let mut kept = String::with_capacity(sql.len());
    let mut skips = false;
    for line in sql.lines() {
        match line.trim() {
            "-- forgets" => skips = true,
            "-- end" => skips = false,
            _ if skips => {}
            _ => {
                kept.push_str(line);
                kept.push('\n');
            }
        }
    }
    kept
}

/// One statement with its arguments, which borrow from nobody.
struct Request {
    sql: &'static str,
    arguments: PgArguments,
    writes: bool,
}

impl Request {
    fn read(sql: &'static str, arguments: PgArguments) -> Self {
        Self { sql, arguments, writes: false }
    }

    /// A read whose connection turns out to be broken is asked once more on a new one: after a restart of the
    /// server every idle connection is dead, and nobody need hear of it.
    async fn run(self, lanes: Arc<Lanes>, answer_timeout: Duration) -> Result<Vec<PgRow>, Error> {
        if self.writes {
            return self.attempt(&lanes, answer_timeout).await.map_err(|failure| failure.error);
        }
        let again = Request { sql: self.sql, arguments: self.arguments.clone(), writes: false };
        match self.attempt(&lanes, answer_timeout).await {
            Err(failure) if failure.connection_broke => {
                again.attempt(&lanes, answer_timeout).await.map_err(|failure| failure.error)
            }
            answer => answer.map_err(|failure| failure.error),
        }
    }

    async fn attempt(self, lanes: &Arc<Lanes>, answer_timeout: Duration) -> Result<Vec<PgRow>, Failure> {
        let kept = |error| Failure { error, connection_broke: false };
        let mut lane = lanes.acquire().await.map_err(kept)?;
        if self.writes {
            failpoint::before_commit();
        }
        let query: Query<'static, Postgres, PgArguments> = sqlx::query_with(self.sql, self.arguments);
        // All rows, to the very end: the server sends them before it commits.
        let answer = tokio::time::timeout(answer_timeout, query.fetch_all(lane.connection())).await;
        let (error, connection_broke) = match answer {
            Ok(Ok(rows)) => {
                lane.release();
                return Ok(rows);
            }
            Ok(Err(error)) => {
                let told = if self.writes { Error::of_write(&error) } else { Error::of_read(&error) };
                if !error::breaks_connection(&error) {
                    lane.release();
                    return Err(kept(told));
                }
                (told, true)
            }
            Err(_) if self.writes => {
                (Error::indeterminate(format!("no answer within {answer_timeout:?}")), false)
            }
            Err(_) => (Error::unavailable(format!("no answer within {answer_timeout:?}")), false),
        };
        lanes.forget_idle();
        Err(Failure { error, connection_broke })
    }
}

/// Why a statement gave no answer.
struct Failure {
    error: Error,
    /// The connection was found dead or died: another one may well work.
    connection_broke: bool,
}

/// Encodes arguments; what cannot be encoded is a fault of the value.
fn arguments(
    encode: impl FnOnce(&mut PgArguments) -> Result<(), sqlx::error::BoxDynError>,
) -> Result<PgArguments, Error> {
    let mut arguments = PgArguments::default();
    encode(&mut arguments).map_err(|_| Error::data("a value cannot be encoded"))?;
    Ok(arguments)
}

/// Runs `prepare` now, while what the caller lent is at hand, and the rest when polled.
fn after<'a, P, T, F>(
    prepared: Result<P, Error>,
    then: impl FnOnce(P) -> F + Send + 'a,
) -> BoxFuture<'a, Result<T, Error>>
where
    P: Send + 'a,
    F: Future<Output = Result<T, Error>> + Send + 'a,
{
    Box::pin(async move { then(prepared?).await })
}

impl Store for PostgresStore {
    fn load<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Snapshot, Error>> {
        use sqlx::Arguments;
        let count = keys.len();
        // An outer join of nothing gives no row, and so no clock: ask for a key that cannot exist.
        let nobody = [Key::new("", "")];
        let asked = if keys.is_empty() { &nobody[..] } else { keys };
        let prepared = arguments(|a| {
            a.add(asked.iter().map(|key| &*key.namespace).bind_iter())?;
            a.add(asked.iter().map(|key| &*key.operation_key).bind_iter())
        });
        after(prepared, move |arguments| async move {
            let rows = self.run(&self.writes, Request::read(LOAD, arguments)).await?;
            let mut snapshot = Snapshot { now: Timestamp(i64::MIN), rows: vec![None; count] };
            for row in &rows {
                let mut cells = PgCells { row, next: 0 };
                let place = cells.integer().ok().flatten().and_then(|place| usize::try_from(place - 1).ok());
                let now = cells.moment().ok().flatten();
                let (Some(place), Some(now)) = (place, now) else {
                    return Err(Error::unavailable("unexpected answer"));
                };
                snapshot.now = now.max(snapshot.now);
                if let Some(slot) = snapshot.rows.get_mut(place) {
                    *slot = row::operation(&mut cells)?;
                }
            }
            Ok(snapshot)
        })
    }

    fn swap<'a>(&'a self, decided: DecidedAt, writes: &'a [Write]) -> BoxFuture<'a, Result<Swapped, Error>> {
        after(bind::batch(decided, writes), move |batch| async move {
            let sql = if batch.forgets { SWAP_AND_FORGET } else { SWAP.as_str() };
            let request = Request { sql, arguments: batch.arguments, writes: true };
            let rows = self.run(&self.writes, request).await?;
            let answer = rows.first().and_then(|row| {
                let written: Vec<Uuid> = row.try_get(0).ok()?;
                let now: Moment = row.try_get(1).ok()?;
                Some((written.into_iter().collect::<HashSet<_>>(), now.0))
            });
            // It has committed, whatever the answer looks like.
            let (ids, now) = answer.ok_or_else(|| Error::indeterminate("unexpected answer"))?;
            if !ids.is_empty() {
                failpoint::after_commit();
            }
            let written = batch.ids.iter().map(|id| ids.contains(id)).collect();
            Ok(Swapped { now, written })
        })
    }

    fn due(&self, kind: DueKind, limit: u32) -> BoxFuture<'_, Result<Vec<Key>, Error>> {
        use sqlx::Arguments;
        let prepared = arguments(|a| {
            a.add(kind.as_str())?;
            a.add(i64::from(limit))
        });
        after(prepared, move |arguments| async move {
            let rows = self.run(&self.reads, Request::read(DUE, arguments)).await?;
            rows.iter().map(key).collect()
        })
    }

    fn poll_due<'a>(
        &'a self,
        query: &'a PollQuery,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Candidate>, Error>> {
        use sqlx::Arguments;
        let prepared = poll_arguments(query).and_then(|mut a| {
            a.add(i64::from(limit)).map_err(|_| Error::data("a value cannot be encoded"))?;
            Ok(a)
        });
        after(prepared, move |arguments| async move {
            let rows = self.run(&self.reads, Request::read(POLL_DUE, arguments)).await?;
            let candidate = |row: &PgRow| -> Result<Candidate, sqlx::Error> {
                let due_at = row.try_get::<Moment, _>(0)?.0;
                let action_type = Arc::from(row.try_get::<&str, _>(1)?);
                Ok(Candidate { due_at, action_type, key: Key::new(row.try_get(2)?, row.try_get(3)?) })
            };
            rows.iter().map(|row| candidate(row).map_err(|error| Error::of_read(&error))).collect()
        })
    }

    fn poll_next<'a>(&'a self, query: &'a PollQuery) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        after(poll_arguments(query), move |arguments| async move {
            let rows = self.run(&self.reads, Request::read(POLL_NEXT, arguments)).await?;
            let row = rows.first().ok_or_else(|| Error::unavailable("unexpected answer"))?;
            let micros: Option<i64> = row.try_get(0).map_err(|error| Error::of_read(&error))?;
            Ok(micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
        })
    }

    fn polled<'a>(&'a self, namespace: &'a str, poll_id: Uuid) -> BoxFuture<'a, Result<Vec<Key>, Error>> {
        use sqlx::Arguments;
        let prepared = arguments(|a| {
            a.add(poll_id)?;
            a.add(namespace)
        });
        after(prepared, move |arguments| async move {
            let rows = self.run(&self.reads, Request::read(POLLED, arguments)).await?;
            rows.iter().map(key).collect()
        })
    }

    fn find<'a>(
        &'a self,
        namespace: &'a str,
        operation_id: Uuid,
    ) -> BoxFuture<'a, Result<Option<Key>, Error>> {
        use sqlx::Arguments;
        let prepared = arguments(|a| {
            a.add(operation_id)?;
            a.add(namespace)
        });
        after(prepared, move |arguments| async move {
            let rows = self.run(&self.reads, Request::read(FIND, arguments)).await?;
            rows.first().map(key).transpose()
        })
    }

    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<super::Operation>, Error>> {
        use sqlx::Arguments;
        let statuses: Vec<&str> = query.statuses.iter().map(|status| status.as_str()).collect();
        let prepared = arguments(|a| {
            a.add(&query.namespace)?;
            a.add(query.below)?;
            a.add((!statuses.is_empty()).then_some(&statuses))?;
            a.add((!query.action_types.is_empty()).then_some(&query.action_types))?;
            a.add(query.review_required)?;
            a.add(query.updated_before.map(Moment))?;
            a.add(query.updated_after.map(Moment))?;
            a.add(query.parent_operation_key.as_deref())?;
            a.add(row::labels_to_json(&query.labels))?;
            a.add(i64::from(query.limit))
        });
        after(prepared, move |arguments| async move {
            let rows = self.run(&self.reads, Request::read(LIST, arguments)).await?;
            let operations = rows.iter().map(|row| row::operation(&mut PgCells { row, next: 0 }));
            operations.filter_map(Result::transpose).collect()
        })
    }

    fn events<'a>(
        &'a self,
        key: &'a Key,
        after_sequence: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, Error>> {
        use sqlx::Arguments;
        let prepared = arguments(|a| {
            a.add(&*key.namespace)?;
            a.add(&*key.operation_key)?;
            a.add(after_sequence)?;
            a.add(i64::from(limit.max(1)))
        });
        after(prepared, move |arguments| async move {
            let rows = self.run(&self.reads, Request::read(EVENTS, arguments)).await?;
            if rows.is_empty() {
                return Ok(None);
            }
            let events = rows.iter().map(|row| row::event(&mut PgCells { row, next: 0 }, key));
            events.filter_map(Result::transpose).collect::<Result<_, _>>().map(Some)
        })
    }

    fn figures(&self) -> BoxFuture<'_, Result<Vec<Figure>, Error>> {
        Box::pin(async move {
            let rows = self.run(&self.reads, Request::read(FIGURES, PgArguments::default())).await?;
            rows.iter().map(|row| row::figure(&mut PgCells { row, next: 0 })).collect()
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

    fn announce<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.notify(text))
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>, Error>> {
        Box::pin(listen::listen(&self.listening))
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let request = Request::read(migrate::POSTGRES_APPLIED, PgArguments::default());
            let rows = match self.run(&self.reads, request).await {
                Err(Error::Schema { .. }) => return Err(migrate::missing()),
                rows => rows?,
            };
            let mut applied = Vec::with_capacity(rows.len());
            for row in &rows {
                let read = || -> Result<_, sqlx::Error> {
                    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get::<bool, _>(2)?))
                };
                let (version, checksum, read_only) = read().map_err(|error| Error::of_read(&error))?;
                if read_only {
                    return Err(Error::unavailable("the server is a standby or read-only"));
                }
                applied.push(migrate::Applied { version, checksum });
            }
            migrate::compare(&migrate::POSTGRES, &applied)
        })
    }
}

fn poll_arguments(query: &PollQuery) -> Result<PgArguments, Error> {
    use sqlx::Arguments;
    arguments(|a| {
        a.add(&query.namespace)?;
        a.add(query.kind.as_str())?;
        a.add((!query.action_types.is_empty()).then_some(&query.action_types))
    })
}

fn key(row: &PgRow) -> Result<Key, Error> {
    let read = || -> Result<Key, sqlx::Error> { Ok(Key::new(row.try_get(0)?, row.try_get(1)?)) };
    read().map_err(|error| Error::of_read(&error))
}

/// A row of PostgreSQL, read from left to right.
struct PgCells<'r> {
    row: &'r PgRow,
    next: usize,
}

impl PgCells<'_> {
    fn get<T>(&mut self) -> Result<Option<T>, sqlx::Error>
    where
        for<'r> T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
    {
        self.next += 1;
        self.row.try_get(self.next - 1)
    }
}

impl Cells for PgCells<'_> {
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
        Ok(self.get::<Moment>()?.map(|moment| moment.0))
    }

    fn id(&mut self) -> Result<Option<Uuid>, sqlx::Error> {
        self.get()
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
