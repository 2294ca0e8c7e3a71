//! The engine on a store whose clock a test moves.

use crate::script::OnStore;
use opledger::{
    engine::{Engine, Settings},
    ledger::{DueKind, Key, Operation, Timestamp},
    policy_file::{self, Policies},
    store::{
        BoxFuture, Candidate, DecidedAt, Error, FeedChanges, FeedPage, Figure, ListQuery, Listener,
        PollQuery, Snapshot, Store, StoredEvent, Swapped, Write,
    },
    telemetry::Metrics,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

/// A store whose clock runs ahead of the real one by what the test said.
pub struct ShiftedClock {
    inner: Arc<dyn Store>,
    ahead_micros: AtomicU64,
    loads: AtomicU64,
    feeds: AtomicU64,
}

impl ShiftedClock {
    pub fn on(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            ahead_micros: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            feeds: AtomicU64::new(0),
        })
    }

    pub fn advance(&self, by: Duration) {
        self.ahead_micros.fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// How often records were loaded.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::SeqCst)
    }

    /// How often a page of the feed was read.
    pub fn feeds(&self) -> u64 {
        self.feeds.load(Ordering::SeqCst)
    }

    fn ahead(&self) -> Duration {
        Duration::from_micros(self.ahead_micros.load(Ordering::SeqCst))
    }

    fn shifted(&self, now: Timestamp) -> Timestamp {
        now.plus(self.ahead())
    }
}

impl Store for ShiftedClock {
    fn load<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Snapshot, Error>> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            let snapshot = self.inner.load(keys).await?;
            Ok(Snapshot { now: self.shifted(snapshot.now), ..snapshot })
        })
    }

    fn swap<'a>(&'a self, decided: DecidedAt, writes: &'a [Write]) -> BoxFuture<'a, Result<Swapped, Error>> {
        Box::pin(async move {
            let decided = DecidedAt { now: decided.now.minus(self.ahead()), ..decided };
            let swapped = self.inner.swap(decided, writes).await?;
            Ok(Swapped { now: self.shifted(swapped.now), ..swapped })
        })
    }

    fn due(&self, kind: DueKind, limit: u32) -> BoxFuture<'_, Result<Vec<Key>, Error>> {
        self.inner.due(kind, limit)
    }

    fn poll_due<'a>(
        &'a self,
        query: &'a PollQuery,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Candidate>, Error>> {
        self.inner.poll_due(query, limit)
    }

    fn poll_next<'a>(&'a self, query: &'a PollQuery) -> BoxFuture<'a, Result<Option<Duration>, Error>> {
        self.inner.poll_next(query)
    }

    fn polled<'a>(&'a self, namespace: &'a str, poll_id: Uuid) -> BoxFuture<'a, Result<Vec<Key>, Error>> {
        self.inner.polled(namespace, poll_id)
    }

    fn find<'a>(&'a self, namespace: &'a str, id: Uuid) -> BoxFuture<'a, Result<Option<Key>, Error>> {
        self.inner.find(namespace, id)
    }

    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Operation>, Error>> {
        self.inner.list(query)
    }

    fn events<'a>(
        &'a self,
        key: &'a Key,
        after_sequence: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, Error>> {
        self.inner.events(key, after_sequence, limit)
    }

    fn figures(&self) -> BoxFuture<'_, Result<Vec<Figure>, Error>> {
        self.inner.figures()
    }

    fn feed<'a>(
        &'a self,
        namespace: &'a str,
        after_sequence: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<FeedPage, Error>> {
        self.feeds.fetch_add(1, Ordering::SeqCst);
        self.inner.feed(namespace, after_sequence, limit)
    }

    fn feed_changes(&self, after_sequence: i64, limit: u32) -> BoxFuture<'_, Result<FeedChanges, Error>> {
        self.inner.feed_changes(after_sequence, limit)
    }

    fn feed_end(&self) -> BoxFuture<'_, Result<i64, Error>> {
        self.inner.feed_end()
    }

    fn announce<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.announce(text)
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>, Error>> {
        self.inner.listen()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.check()
    }
}

/// An engine on this store. It does not sweep: only commands notice what the time has brought about.
pub fn engine(store: Arc<dyn Store>, policy_text: &str) -> Engine {
    let settings = Settings { sweep_interval: Duration::from_secs(3600), ..Settings::default() };
    Engine::start(
        store,
        Policies::of(policy_file::parse(policy_text).expect("policies").0),
        settings,
        Metrics::new(),
    )
}

/// Something that plays scripts on this store.
pub fn on(store: Arc<dyn Store>, policy_text: &str) -> OnStore {
    let store = ShiftedClock::on(store);
    OnStore { engine: engine(store.clone(), policy_text), store }
}
