//! A fixed number of connections, each used by one task at a time.
//!
//! Not sqlx's pool: that asks the server a question each time a connection comes back, one more
//! round trip for each batch. Here a connection comes back only when its user says that all is
//! well; in every other case, a dropped future included, it is closed.

use crate::store::{Error, error};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, postgres::PgConnectOptions};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// A connection that was unused for so long is asked whether it still lives.
const IDLE_TRUSTED: Duration = Duration::from_secs(5);
/// After a failed attempt to connect, the next one waits up to this long: not all at once.
const RECONNECT_PAUSE_MS: u128 = 250;

/// What is acknowledged is on the disk, whatever the database's or the role's default says: a ledger has no
/// use for a faster commit that a crash may take back. Other settings stay: they ask for more, not for less.
const DURABLE: &str = "select set_config('synchronous_commit', 'on', false) \
    where current_setting('synchronous_commit') = 'off'";

/// The connections.
pub(super) struct Lanes {
    options: PgConnectOptions,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    acquire_timeout: Duration,
    what: &'static str,
}

struct Idle {
    connection: PgConnection,
    since: Instant,
}

impl Lanes {
    pub(super) fn new(
        what: &'static str,
        options: PgConnectOptions,
        connections: u32,
        acquire_timeout: Duration,
    ) -> Arc<Self> {
        let connections = connections.max(1) as usize;
        Arc::new(Self {
            options,
            permits: Arc::new(Semaphore::new(connections)),
            idle: Mutex::new(Vec::with_capacity(connections)),
            acquire_timeout,
            what,
        })
    }

    /// A connection for one task, soon or not at all. It changes nothing, so a failure is determinate.
    pub(super) async fn acquire(self: &Arc<Self>) -> Result<Lane, Error> {
        let deadline = Instant::now() + self.acquire_timeout;
        let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned())
            .await
            .map_err(|_| Error::unavailable(format!("all {} connections are busy", self.what)))?
            .expect("the semaphore is never closed");
        let connection = match self.trusted(deadline).await {
            Some(connection) => connection,
            None => self.connect(deadline).await?,
        };
        Ok(Lane { lanes: Arc::clone(self), connection, _permit: permit })
    }

    /// An idle connection that was used lately or has just answered.
    async fn trusted(&self, deadline: Instant) -> Option<PgConnection> {
        loop {
            let mut idle = self.idle().pop()?;
            if idle.since.elapsed() < IDLE_TRUSTED {
                return Some(idle.connection);
            }
            let patience = deadline.min(Instant::now() + self.acquire_timeout / 4);
            if let Ok(Ok(())) = timeout_at(patience, idle.connection.ping()).await {
                return Some(idle.connection);
            }
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<PgConnection, Error> {
        let message = match timeout_at(deadline, self.options.connect()).await {
            Ok(Ok(mut connection)) => match timeout_at(deadline, connection.execute(DURABLE)).await {
                Ok(Ok(_)) => return Ok(connection),
                Ok(Err(error)) => error::describe(&error),
                Err(_) => format!("no answer within {:?}", self.acquire_timeout),
            },
            Ok(Err(error)) => error::describe(&error),
            Err(_) => format!("no connection within {:?}", self.acquire_timeout),
        };
        let pause = uuid::Uuid::new_v4().as_u128() % RECONNECT_PAUSE_MS;
        let pause = Duration::from_millis(u64::try_from(pause).unwrap_or(0));
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        Err(Error::unavailable(message))
    }

    /// Closes what is idle: after a broken connection the others are probably dead too.
    pub(super) fn forget_idle(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use. Dropped without [`Lane::release`], it is closed.
pub(super) struct Lane {
    lanes: Arc<Lanes>,
    connection: PgConnection,
    _permit: OwnedSemaphorePermit,
}

impl Lane {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Gives the connection back: nothing is under way on it.
    pub(super) fn release(self) {
        self.lanes.idle().push(Idle { connection: self.connection, since: Instant::now() });
    }
}
