//! Carries commands to the rules and their decisions to the store.
//!
//! A command goes to the shard of its key. A shard takes all that is waiting, loads what it must, lets
//! [`crate::ledger::transition`] decide, writes the whole batch in one statement, and only then answers.
//! So a batch is one command at low load and grows by itself under high load; there is no timer.

mod batch;
mod clock;
pub mod feed;
mod gossip;
pub mod poll;
mod shard;
mod sweep;
mod waiters;

pub use poll::Poll;

use crate::{
    ledger::{Action, Command, Key, NextStep, Policy, Refused, Reply, Status},
    policy_file::Policies,
    store::{self, ListQuery, Store, StoredEvent},
    telemetry::Metrics,
};
use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};
use uuid::Uuid;

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Batch loops. Each has a store connection of its own in use; more than the database has cores only
    /// split the batches.
    pub shards: usize,
    /// Commands a batch takes at most.
    pub batch_max: usize,
    /// Commands that may wait for a shard; one more is refused as overload.
    pub queue_max: usize,
    /// How often lapsed leases and unresolved operations are looked for.
    pub sweep_interval: Duration,
    /// Finished operations that retention takes in one go. It rests after each.
    pub retention_batch: u32,
    /// Records per shard that are kept at hand, so that the common next command needs no load.
    pub cached_rows: usize,
    /// What watchers of the change feed may take.
    pub feed: feed::Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shards: 2,
            batch_max: 512,
            queue_max: 4096,
            sweep_interval: Duration::from_secs(1),
            retention_batch: 100,
            cached_rows: 8192,
            feed: feed::Limits::default(),
        }
    }
}

/// Why a command got no reply.
#[derive(Debug)]
pub enum Error {
    /// The rules refuse it.
    Refused(Box<Refused>),
    /// The store failed. The change may have happened where the error says so.
    Store(Arc<store::Error>),
    /// Too much is waiting already. Nothing was done.
    Overloaded,
    /// Others changed the record each time it was to be written. Nothing was done.
    Contended,
    /// The service is going down. Nothing was done.
    Stopping,
}

/// The actor of changes that nobody asked for.
pub const SWEEPER: &str = "system:sweeper";

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    policies: Policies,
    shards: Vec<mpsc::Sender<batch::Job>>,
    hasher: RandomState,
    waiters: Arc<waiters::Waiters>,
    /// Changes whenever work for checkers or deliverers was written.
    due: Arc<watch::Sender<()>>,
    feed: Arc<feed::Feed>,
    gossip: Arc<gossip::Gossip>,
    started: Instant,
    /// No more waiting: comes before `stopping`, or with it.
    draining: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the shards and the sweeper on the current runtime.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        policies: Policies,
        settings: Settings,
        metrics: Arc<Metrics>,
    ) -> Self {
        let clock = Arc::new(clock::Clock::default());
        let waiters = Arc::new(waiters::Waiters::default());
        let due = Arc::new(watch::Sender::new(()));
        let feed = Arc::new(feed::Feed::new(settings.feed));
        let gossip = Arc::new(gossip::Gossip::new(waiters.clone(), due.clone(), feed.clone()));
        let (draining, _) = watch::channel(false);
        let (stopping, _) = watch::channel(false);
        let mut tasks = Vec::new();
        let mut shards = Vec::new();
        for _ in 0..settings.shards.max(1) {
            let (sender, queue) = mpsc::channel(settings.queue_max.max(1));
            let shard = shard::Shard::new(shard::Parts {
                store: store.clone(),
                policies: policies.clone(),
                clock: clock.clone(),
                waiters: waiters.clone(),
                due: due.clone(),
                feed: feed.clone(),
                gossip: gossip.clone(),
                metrics: metrics.clone(),
                batch_max: settings.batch_max.max(1),
                cached_rows: settings.cached_rows.max(1),
            });
            tasks.push(tokio::spawn(shard.run(queue, stopping.subscribe())));
            shards.push(sender);
        }
        let engine = Self {
            inner: Arc::new(Inner {
                store,
                policies,
                shards,
                hasher: RandomState::new(),
                waiters,
                due,
                feed,
                gossip,
                started: Instant::now(),
                draining,
                stopping,
                tasks: Mutex::new(tasks),
            }),
        };
        engine.start_gossip();
        let stopping = || engine.inner.stopping.subscribe();
        let sweeper = sweep::run(engine.clone(), settings.sweep_interval, stopping());
        let retention =
            sweep::retain(engine.clone(), settings.sweep_interval, settings.retention_batch, stopping());
        engine.keep(tokio::spawn(sweeper));
        engine.keep(tokio::spawn(retention));
        engine
    }

    fn start_gossip(&self) {
        let Inner { store, gossip, feed, stopping, .. } = &*self.inner;
        self.keep(tokio::spawn(gossip.clone().speak(store.clone(), stopping.subscribe())));
        self.keep(tokio::spawn(gossip.clone().listen(store.clone(), stopping.subscribe())));
        let tail = feed::tail(feed.clone(), store.clone(), stopping.subscribe());
        self.keep(tokio::spawn(tail));
    }

    fn keep(&self, task: JoinHandle<()>) {
        self.inner.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(task);
    }

    /// True while changes that other replicas announce are heard here; where not, callers that wait for one
    /// look more often.
    #[must_use]
    pub fn hears_replicas(&self) -> bool {
        self.inner.gossip.hears()
    }

    /// Lets nobody wait any longer: who waits gets what there is, who watches is told where to resume.
    /// Commands are carried out as before. Idempotent.
    pub fn drain(&self) {
        self.inner.draining.send_replace(true);
    }

    /// Takes no more commands, finishes those that wait, and ends. Idempotent.
    pub async fn stop(&self) {
        self.drain();
        self.inner.stopping.send_replace(true);
        let tasks =
            std::mem::take(&mut *self.inner.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for task in tasks {
            // A shard that panicked has answered nobody; there is nothing more to do about it here.
            drop(task.await);
        }
        self.inner.gossip.last_word(&*self.inner.store).await;
    }

    /// The policy that holds for an action type now.
    #[must_use]
    pub fn policy(&self, action_type: &str) -> Arc<Policy> {
        self.inner.policies.current().get(action_type).clone()
    }

    /// Carries out one command. When this answers `Ok`, or with a refusal, what it says is durable.
    ///
    /// Dropping the future takes the command back if it has not begun; once begun it is finished.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn execute(&self, command: Command) -> Result<Reply, Error> {
        self.submit(command)?.await.unwrap_or(Err(Error::Stopping))
    }

    fn submit(&self, command: Command) -> Result<oneshot::Receiver<Result<Reply, Error>>, Error> {
        if *self.inner.stopping.borrow() {
            return Err(Error::Stopping);
        }
        let (answer, receiver) = oneshot::channel();
        let shards = &self.inner.shards;
        let hash = self.inner.hasher.hash_one(&command.key);
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose the shard")]
        let shard = &shards[hash as usize % shards.len()];
        shard.try_send(batch::Job::new(command, answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Overloaded,
            mpsc::error::TrySendError::Closed(_) => Error::Stopping,
        })?;
        Ok(receiver)
    }

    /// The record as it is now: a lapsed lease is noticed, and written, on the way.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn observe(&self, key: &Key) -> Result<Reply, Error> {
        self.execute(Command { key: key.clone(), actor: SWEEPER.into(), action: Action::Observe }).await
    }

    /// Like [`Engine::observe`], but waits at most until `deadline` for a record of which `is_enough` is
    /// true, and then answers with what there is.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn observe_until(
        &self,
        key: &Key,
        deadline: Instant,
        is_enough: impl Fn(&Reply) -> bool,
    ) -> Result<Reply, Error> {
        let mut waiter = self.inner.waiters.wait_for(key);
        let mut draining = self.inner.draining.subscribe();
        loop {
            let reply = self.observe(key).await?;
            if is_enough(&reply) || Instant::now() >= deadline || *draining.borrow() {
                return Ok(reply);
            }
            // Another replica's word may have been lost: look again at a slow pace, and when the lease that
            // stands in the way ends.
            let mut look = waiter.next_look(Instant::now(), self.inner.started, self.inner.gossip.recheck());
            if let Some(lapse) = reply.retry_after {
                look = look.min(Instant::now() + lapse.max(Duration::from_millis(20)));
            }
            tokio::select! {
                () = waiter.changed() => {}
                () = tokio::time::sleep_until(look.min(deadline)) => {}
                () = stopped(&mut draining) => {}
            }
        }
    }

    /// The key of the operation with this id.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn find(&self, namespace: &str, operation_id: Uuid) -> Result<Option<Key>, Error> {
        self.inner.store.find(namespace, operation_id).await.map_err(Error::from)
    }

    /// A page of operations, newest first, each with its next step.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn list(&self, query: &ListQuery) -> Result<Vec<crate::ledger::Operation>, Error> {
        self.inner.store.list(query).await.map_err(Error::from)
    }

    /// A page of one operation's events.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn events(&self, key: &Key, after: i64, limit: u32) -> Result<Option<Vec<StoredEvent>>, Error> {
        self.inner.store.events(key, after, limit).await.map_err(Error::from)
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// True where nobody but the holder of a lease stands between a caller and its answer.
#[must_use]
pub fn is_worth_waiting(reply: &Reply) -> bool {
    reply.next_step == NextStep::Wait && reply.operation.state.status == Status::InProgress
}

/// Answers once the engine is to stop.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the engine is gone: that is a stop as well.
    drop(stopping.wait_for(|stopping| *stopping).await);
}
