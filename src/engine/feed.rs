//! The change feed: follows the events of a namespace, or of one key, as they become final.
//!
//! Watchers read their pages from the store, one page at a time, and only when their client has taken the
//! last one. While they have nothing to read they cost nothing: one task per engine, the tail, looks at the
//! feed's end and wakes those whose namespace or key has something new.

use super::{
    Engine, Error,
    waiters::{KeyHash, Waiter, Waiters},
};
use crate::{
    ledger::Key,
    store::{self, FeedEvent, FeedPage, Store},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

/// Events that one read looks at.
const PAGE: u32 = 500;
/// Events that wait for the client of one watcher, at most; each carries at most a few kilobytes.
const BUFFER: usize = 16;
/// Reads at a time, of all watchers together: the store's other readers keep a connection.
const READS: usize = 1;
/// How often the tail looks while nobody tells it that something was written.
const LOOK_IDLE: Duration = Duration::from_millis(500);
/// The shortest pause between two looks. What was just written may still be behind a transaction that is
/// under way: the tail looks again after twice as long, each time, up to [`LOOK_IDLE`].
const LOOK_SOON: Duration = Duration::from_millis(10);

/// What watchers may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Watchers at a time.
    pub watchers: usize,
    /// How often a watcher with nothing to say gives a sign of life.
    pub heartbeat: Duration,
    /// How long a client may leave what it was sent.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { watchers: 10_000, heartbeat: Duration::from_secs(5), patience: Duration::from_secs(30) }
    }
}

/// What to follow.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The namespace.
    pub namespace: String,
    /// Only this operation's, until it is finished.
    pub operation_key: Option<String>,
    /// Only what comes after this sequence number.
    pub after: i64,
    /// Any of these; empty: all.
    pub action_types: Vec<String>,
}

/// What a watcher gets.
#[derive(Debug)]
pub enum Sent {
    /// An event.
    Event(Box<FeedEvent>),
    /// There is nothing newer up to this sequence number.
    CaughtUp(i64),
}

/// Why a watcher gets no more. After all but the first: to be resumed after this sequence number.
#[derive(Debug)]
pub enum End {
    /// The operation that was watched is finished.
    Finished,
    /// The client left what it was sent.
    TooSlow(i64),
    /// The service is going down.
    Stopping(i64),
    /// The events cannot be read.
    Failed(i64, Error),
}

/// What a watcher gets, and in the end why there is no more. Dropped, it ends the watching.
pub struct Watching {
    /// What there is, in order.
    pub sent: mpsc::Receiver<Sent>,
    /// Known once `sent` is closed.
    pub end: oneshot::Receiver<End>,
}

/// Who watches what.
pub(super) struct Feed {
    limits: Limits,
    /// Changes whenever something was written.
    stirred: watch::Sender<()>,
    /// How many watch.
    watching: watch::Sender<usize>,
    rooms: Mutex<HashMap<String, Room>>,
    /// The watchers of single keys; beside the engine's waiters, whom only that one change wakes.
    keys: Arc<Waiters>,
    reads: Semaphore,
}

/// The watchers of one namespace.
struct Room {
    /// Counts the news.
    news: watch::Sender<u64>,
    watching: usize,
    /// What one of them has read since the last news: the others mostly want the same.
    last: Option<Shared>,
}

struct Shared {
    news: u64,
    after: i64,
    page: Arc<FeedPage>,
}

impl Room {
    fn wake(&self) {
        self.news.send_modify(|count| *count += 1);
    }
}

impl Feed {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            stirred: watch::Sender::new(()),
            watching: watch::Sender::new(0),
            rooms: Mutex::default(),
            keys: Arc::default(),
            reads: Semaphore::new(READS),
        }
    }

    /// Something was written, here or by another replica.
    pub fn stir(&self) {
        self.stirred.send_replace(());
    }

    /// A place among the watchers; none where there are too many.
    fn enter(self: &Arc<Self>) -> Option<Seat> {
        let max = self.limits.watchers;
        let entered = self.watching.send_if_modified(|watching| {
            let fits = *watching < max;
            *watching += usize::from(fits);
            fits
        });
        entered.then(|| Seat(self.clone()))
    }

    fn join(self: &Arc<Self>, namespace: &str) -> Place {
        let mut rooms = self.lock();
        let room = rooms.entry(namespace.to_owned()).or_insert_with(|| Room {
            news: watch::Sender::new(0),
            watching: 0,
            last: None,
        });
        room.watching += 1;
        Place { feed: self.clone(), namespace: namespace.to_owned(), news: room.news.subscribe() }
    }

    fn wake(&self, namespace: &str) {
        if let Some(room) = self.lock().get(namespace) {
            room.wake();
        }
    }

    fn wake_all(&self) {
        self.lock().values().for_each(Room::wake);
        self.keys.wake_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the watchers that there may be.
struct Seat(Arc<Feed>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.watching.send_modify(|watching| *watching -= 1);
    }
}

/// A place in a room: a watcher of a namespace.
struct Place {
    feed: Arc<Feed>,
    namespace: String,
    news: watch::Receiver<u64>,
}

impl Place {
    /// The page after a sequence number: another watcher's, where there was no news since that was read.
    async fn page(&mut self, store: &dyn Store, after: i64) -> Result<Arc<FeedPage>, store::Error> {
        let news = *self.news.borrow_and_update();
        let last = self.feed.lock().get(&self.namespace).and_then(|room| {
            let last = room.last.as_ref()?;
            (last.news == news && last.after == after).then(|| last.page.clone())
        });
        if let Some(page) = last {
            return Ok(page);
        }
        let page = Arc::new(store.feed(&self.namespace, after, PAGE).await?);
        if let Some(room) = self.feed.lock().get_mut(&self.namespace) {
            room.last = (room.watching > 1).then(|| Shared { news, after, page: page.clone() });
        }
        Ok(page)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut rooms = self.feed.lock();
        if let Some(room) = rooms.get_mut(&self.namespace) {
            room.watching -= 1;
            if room.watching == 0 {
                rooms.remove(&self.namespace);
            }
        }
    }
}

/// Looks at the feed's end while somebody watches, and wakes those who have something new.
pub(super) async fn tail(feed: Arc<Feed>, store: Arc<dyn Store>, mut stopping: watch::Receiver<bool>) {
    let tail = async {
        let mut watching = feed.watching.subscribe();
        let mut stirred = feed.stirred.subscribe();
        loop {
            if watching.wait_for(|watching| *watching > 0).await.is_err() {
                return;
            }
            // Whoever read before this moment and waits now has perhaps not seen what came in between.
            let mut position = loop {
                match store.feed_end().await {
                    Ok(end) => break end,
                    Err(_) => tokio::time::sleep(LOOK_IDLE).await,
                }
            };
            feed.wake_all();
            let mut pause = LOOK_SOON;
            while *watching.borrow() > 0 {
                stirred.mark_unchanged();
                match look(&feed, &*store, &mut position).await {
                    Ok(true) => pause = LOOK_SOON,
                    Ok(false) => pause = LOOK_IDLE.min(pause * 2),
                    // Watchers that read find out, and say so; the tail only goes on.
                    Err(_) => pause = LOOK_IDLE,
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stirred.changed() => {
                        pause = LOOK_SOON;
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = tail => {}
        () = super::stopped(&mut stopping) => {}
    }
}

/// Reads on from `position` to the end. True where there was something.
async fn look(feed: &Feed, store: &dyn Store, position: &mut i64) -> Result<bool, store::Error> {
    let before = *position;
    loop {
        let changes = store.feed_changes(*position, PAGE).await?;
        *position = changes.upto;
        let mut last = "";
        let mut keys: Vec<&Key> = changes.keys.iter().collect();
        keys.sort_unstable();
        for key in keys {
            if last != &*key.namespace {
                last = &key.namespace;
                feed.wake(last);
            }
            feed.keys.wake(KeyHash::of(key));
        }
        if !changes.more {
            return Ok(*position > before);
        }
    }
}

impl Engine {
    /// Begins to watch.
    ///
    /// # Errors
    /// [`Error::Refused`] where the operation to watch is not there; [`Error::Overloaded`] where too many
    /// watch already; [`Error::Stopping`]; [`Error::Store`].
    pub async fn watch(&self, watch: Watch) -> Result<Watching, Error> {
        let feed = &self.inner.feed;
        if *self.inner.draining.borrow() {
            return Err(Error::Stopping);
        }
        let seat = feed.enter().ok_or(Error::Overloaded)?;
        let (sender, sent) = mpsc::channel(BUFFER);
        let (say_end, end) = oneshot::channel();
        let source = match &watch.operation_key {
            Some(operation_key) => {
                let key = Key::new(&watch.namespace, operation_key);
                let waiters = [self.inner.waiters.wait_for(&key), feed.keys.wait_for(&key)];
                let reply = self.observe(&key).await?;
                let is_finished = reply.operation.state.status.is_terminal();
                let action_type = reply.operation.identity.action_type.clone();
                Source::Key { key, waiters, action_type, is_finished }
            }
            None => Source::Namespace(feed.join(&watch.namespace)),
        };
        let mut watcher = Watcher {
            upto: watch.after,
            watch,
            source,
            store: self.inner.store.clone(),
            sender,
            feed: feed.clone(),
            draining: self.inner.draining.subscribe(),
        };
        tokio::spawn(async move {
            let end = watcher.run().await;
            drop(seat);
            // Before the channel closes: who finds it closed finds the reason as well.
            drop(say_end.send(end));
            drop(watcher);
        });
        Ok(Watching { sent, end })
    }
}

/// Where a watcher's events come from.
enum Source {
    Namespace(Place),
    Key { key: Key, waiters: [Waiter; 2], action_type: Arc<str>, is_finished: bool },
}

impl Source {
    async fn changed(&mut self) {
        match self {
            Source::Namespace(place) => {
                if place.news.changed().await.is_err() {
                    // Cannot be: the room lives as long as this place. Never answer rather than spin.
                    std::future::pending::<()>().await;
                }
            }
            Source::Key { waiters: [by_shards, by_tail], .. } => tokio::select! {
                () = by_shards.changed() => {}
                () = by_tail.changed() => {}
            },
        }
    }
}

struct Watcher {
    watch: Watch,
    source: Source,
    /// All up to here was sent.
    upto: i64,
    store: Arc<dyn Store>,
    sender: mpsc::Sender<Sent>,
    feed: Arc<Feed>,
    draining: watch::Receiver<bool>,
}

/// What one read found.
struct Read {
    found: Vec<FeedEvent>,
    upto: i64,
    more: bool,
    is_finished: bool,
}

impl Watcher {
    async fn run(&mut self) -> End {
        let mut draining = self.draining.clone();
        let client = self.sender.clone();
        let ended = tokio::select! {
            end = self.follow() => Some(end),
            () = super::stopped(&mut draining) => None,
            () = client.closed() => Some(End::Finished),
        };
        ended.unwrap_or(End::Stopping(self.upto))
    }

    async fn follow(&mut self) -> End {
        let every = self.feed.limits.heartbeat;
        let mut heartbeat = interval_at(Instant::now() + every, every);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_first = true;
        loop {
            let read = match self.read().await {
                Ok(read) => read,
                Err(error) => return End::Failed(self.upto, error),
            };
            for event in read.found {
                let sequence = event.stored.sequence;
                if !self.send(Sent::Event(Box::new(event))).await {
                    return End::TooSlow(self.upto);
                }
                self.upto = sequence;
            }
            self.upto = read.upto.max(self.upto);
            if read.more {
                continue;
            }
            if read.is_finished {
                return End::Finished;
            }
            if std::mem::take(&mut is_first) {
                if !self.send(Sent::CaughtUp(self.upto)).await {
                    return End::TooSlow(self.upto);
                }
                heartbeat.reset();
            }
            loop {
                tokio::select! {
                    () = self.source.changed() => break,
                    _ = heartbeat.tick() => {}
                }
                if !self.send(Sent::CaughtUp(self.upto)).await {
                    return End::TooSlow(self.upto);
                }
            }
        }
    }

    /// The next page. A page of somebody else's events is empty.
    async fn read(&mut self) -> Result<Read, Error> {
        // Closed never; waits its turn among the watchers.
        let _turn = self.feed.reads.acquire().await.map_err(|_| Error::Stopping)?;
        let wanted = &self.watch.action_types;
        let is_wanted =
            |action_type: &str| wanted.is_empty() || wanted.iter().any(|name| name == action_type);
        match &mut self.source {
            Source::Namespace(place) => {
                let page = place.page(&*self.store, self.upto).await?;
                let found =
                    page.found.iter().filter(|event| is_wanted(&event.action_type)).cloned().collect();
                Ok(Read { found, upto: page.upto, more: page.more, is_finished: false })
            }
            Source::Key { key, action_type, is_finished, .. } => {
                let events = self.store.events(key, self.upto, PAGE).await?;
                // Forgotten in the meantime: nothing more will come.
                let Some(events) = events else {
                    return Ok(Read { found: Vec::new(), upto: self.upto, more: false, is_finished: true });
                };
                let more = events.len() >= PAGE as usize;
                let upto = events.last().map_or(self.upto, |last| last.sequence);
                *is_finished |= events.last().is_some_and(|last| last.event.status.is_terminal());
                let found = events.into_iter().filter(|_| is_wanted(action_type));
                let found =
                    found.map(|stored| FeedEvent { action_type: action_type.clone(), stored }).collect();
                Ok(Read { found, upto, more, is_finished: *is_finished })
            }
        }
    }

    /// False where the client has not taken enough for too long.
    async fn send(&self, sent: Sent) -> bool {
        // A client that has gone ends the watching elsewhere.
        timeout(self.feed.limits.patience, self.sender.send(sent)).await.is_ok()
    }
}
