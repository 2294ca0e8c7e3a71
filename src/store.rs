//! What storage promises. It loads and swaps; no rule of the ledger lives behind this seam.

use crate::ledger::{Due, DueKind, Event, Key, Operation, Status, Timestamp, operation::Revision};
use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};
use uuid::Uuid;

pub mod error;
pub mod migrate;
pub mod open;
pub mod postgres;
mod row;
pub mod sqlite;

pub use error::Error;
pub use migrate::{check_schema, migrate};
pub use open::{Backend, Settings, open, redacted};

/// The longest announcement, in bytes: what PostgreSQL takes, and a little less.
pub const ANNOUNCEMENT_MAX: usize = 7900;

/// A boxed future, so that a store can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Records as they stood at one moment, with that moment on the store's clock.
pub struct Snapshot {
    /// The store's clock.
    pub now: Timestamp,
    /// One entry for each key asked for, in the same order; none where there is no such operation.
    pub rows: Vec<Option<Operation>>,
}

/// What a write deletes, in the same transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forgets {
    /// Nothing.
    #[default]
    Nothing,
    /// The payload and the events of before; what the write itself adds stays.
    History,
    /// Everything: the record, its events and its due work. `after` and `events` are not written.
    Key,
}

/// One record to write, if it is still what it was.
pub struct Write {
    /// What must be there: this revision, or (none) no such operation.
    pub expected: Option<Revision>,
    /// What was due before; nothing for a new operation.
    pub due_before: Due,
    /// The record to write.
    pub after: Operation,
    /// The events of the steps from there to here, in order.
    pub events: Vec<Event>,
    /// What goes.
    pub forgets: Forgets,
}

impl Write {
    /// What is due once it is written.
    #[must_use]
    pub fn due_after(&self) -> Due {
        match self.forgets {
            Forgets::Key => Due::default(),
            Forgets::Nothing | Forgets::History => Due::of(&self.after),
        }
    }
}

/// The time that the writes were decided by.
#[derive(Clone, Copy, Debug)]
pub struct DecidedAt {
    /// The store's time, carried forward from its last answer.
    pub now: Timestamp,
    /// Where the store's clock differs by more than this when the writes arrive, nothing is
    /// written and every write answers stale: the process was frozen or the clock has jumped.
    pub tolerance: Duration,
}

/// What became of a batch of writes.
pub struct Swapped {
    /// The store's clock.
    pub now: Timestamp,
    /// For each write, in order: true where it is durable, false where the record was another one
    /// (stale) and nothing of it was written.
    pub written: Vec<bool>,
}

/// Which operations to list: newest first.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// The namespace.
    pub namespace: String,
    /// Any of these; empty: all.
    pub statuses: Vec<Status>,
    /// Any of these; empty: all.
    pub action_types: Vec<String>,
    /// With or without the review flag; none: both.
    pub review_required: Option<bool>,
    /// All of these.
    pub labels: BTreeMap<String, String>,
    /// Last changed before this.
    pub updated_before: Option<Timestamp>,
    /// Last changed at or after this.
    pub updated_after: Option<Timestamp>,
    /// Parts of this operation.
    pub parent_operation_key: Option<String>,
    /// Only operations with a smaller id: the last one of the page before.
    pub below: Option<Uuid>,
    /// At most so many.
    pub limit: u32,
}

/// Which work a poll takes.
#[derive(Clone, Debug)]
pub struct PollQuery {
    /// The namespace.
    pub namespace: String,
    /// [`DueKind::Check`] or [`DueKind::Deliver`].
    pub kind: DueKind,
    /// Any of these; empty: all.
    pub action_types: Vec<String>,
}

/// Something that a poll may take.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Since when it is due.
    pub due_at: Timestamp,
    /// Its action type.
    pub action_type: Arc<str>,
    /// Its name.
    pub key: Key,
}

/// Unfinished work of one kind and action type, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What has to happen.
    pub kind: DueKind,
    /// To operations of this action type.
    pub action_type: String,
    /// And whether their outcome is unknown.
    pub is_unknown: bool,
    /// How many.
    pub count: u64,
    /// How many of them now.
    pub due: u64,
    /// How long the one that is due first has been due; zero where it is not yet.
    pub due_for: Duration,
    /// How long the oldest unknown outcome has been unknown.
    pub unknown_for: Option<Duration>,
}

/// An event as it was stored.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    /// Grows within a namespace.
    pub sequence: i64,
    /// Whose it is.
    pub operation_key: String,
    /// The event.
    pub event: Event,
}

/// An event as the change feed shows it.
#[derive(Clone, Debug)]
pub struct FeedEvent {
    /// The action type of its operation.
    pub action_type: Arc<str>,
    /// The event.
    pub stored: StoredEvent,
}

/// A page of the change feed. Nothing at or below `upto` can appear any more.
#[derive(Clone, Debug)]
pub struct FeedPage {
    /// What was asked for, in the order of the sequence numbers.
    pub found: Vec<FeedEvent>,
    /// The last sequence number, of whatever namespace, that was looked at; what was asked for where
    /// there was nothing.
    pub upto: i64,
    /// True where there may be more.
    pub more: bool,
}

/// Which operations have new events in the change feed.
#[derive(Clone, Debug)]
pub struct FeedChanges {
    /// Each once, in no order.
    pub keys: Vec<Key>,
    /// As in [`FeedPage`].
    pub upto: i64,
    /// True where there may be more.
    pub more: bool,
}

/// Hears what other replicas announce.
pub trait Listener: Send {
    /// The next announcement. An error means that some may have been missed: begin anew.
    fn next(&mut self) -> BoxFuture<'_, Result<String, Error>>;
}

/// A place where operations and their events are kept.
///
/// Every method may be cancelled; none leaves half a change. An error says whether the change may
/// have happened all the same ([`Error::is_indeterminate`]).
pub trait Store: Send + Sync + 'static {
    /// Loads records by key. `keys` are distinct.
    fn load<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Snapshot, Error>>;

    /// Writes all records that are still what they were, with their events and due work, in one
    /// transaction. `writes` are sorted by key and have distinct keys. An `Ok` answer is durable.
    fn swap<'a>(&'a self, decided: DecidedAt, writes: &'a [Write]) -> BoxFuture<'a, Result<Swapped, Error>>;

    /// The keys of at most `limit` operations with work of this kind that is due by the store's clock,
    /// longest due first.
    fn due(&self, kind: DueKind, limit: u32) -> BoxFuture<'_, Result<Vec<Key>, Error>>;

    /// What a poll may take now, at most `limit` of each action type, longest due first.
    fn poll_due<'a>(
        &'a self,
        query: &'a PollQuery,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Candidate>, Error>>;

    /// How long until a poll may take something; none where nothing is in sight.
    fn poll_next<'a>(&'a self, query: &'a PollQuery) -> BoxFuture<'a, Result<Option<Duration>, Error>>;

    /// The keys of what this poll took and still holds.
    fn polled<'a>(&'a self, namespace: &'a str, poll_id: Uuid) -> BoxFuture<'a, Result<Vec<Key>, Error>>;

    /// The key of the operation with this id in this namespace.
    fn find<'a>(
        &'a self,
        namespace: &'a str,
        operation_id: Uuid,
    ) -> BoxFuture<'a, Result<Option<Key>, Error>>;

    /// A page of operations.
    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Operation>, Error>>;

    /// A page of one operation's events after a sequence number, oldest first; none where there is no
    /// such operation.
    fn events<'a>(
        &'a self,
        key: &'a Key,
        after_sequence: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, Error>>;

    /// Unfinished work, counted; costs as much as there is of it, whatever else is stored.
    fn figures(&self) -> BoxFuture<'_, Result<Vec<Figure>, Error>>;

    /// The events of a namespace among the next `limit` events of all namespaces after a sequence number.
    /// Complete and final: whatever is committed later has a greater number than all that this has
    /// looked at.
    fn feed<'a>(
        &'a self,
        namespace: &'a str,
        after_sequence: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<FeedPage, Error>>;

    /// Whose the next `limit` events of all namespaces after a sequence number are.
    fn feed_changes(&self, after_sequence: i64, limit: u32) -> BoxFuture<'_, Result<FeedChanges, Error>>;

    /// The sequence number of the last event that the feed shows now; 0 where there is none.
    fn feed_end(&self) -> BoxFuture<'_, Result<i64, Error>>;

    /// Tells all replicas, this one too, a short text of ASCII, at most [`ANNOUNCEMENT_MAX`] bytes. It may get lost.
    fn announce<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// Begins to listen to announcements; none where this store has no replicas to tell.
    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>, Error>>;

    /// Succeeds where the store answers and its schema is this binary's.
    fn check(&self) -> BoxFuture<'_, Result<(), Error>>;
}
