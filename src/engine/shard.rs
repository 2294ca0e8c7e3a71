//! One batch loop: takes what waits, loads, decides, writes, answers.

use super::{
    Error,
    batch::{Group, Job},
    clock::{Clock, TOLERANCE},
    feed::Feed,
    gossip::Gossip,
    waiters::{KeyHash, Waiters},
};
use crate::{
    ledger::{DueKind, EventKind, Key, Operation, Status},
    policy_file::Policies,
    store::{self, DecidedAt, Store, Swapped, Write},
    telemetry::{Metrics, StoreFailure},
};
use lru::LruCache;
use std::{num::NonZeroUsize, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

/// A command is decided at most so often: then others change the record faster than it can be written.
const TRIES_MAX: u32 = 10;
/// An outage is logged at most this often.
const OUTAGE_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Records with longer payloads are not kept at hand.
const CACHED_PAYLOAD_MAX: usize = 4096;

/// What a shard is made of.
pub(super) struct Parts {
    pub store: Arc<dyn Store>,
    pub policies: Policies,
    pub clock: Arc<Clock>,
    pub waiters: Arc<Waiters>,
    pub due: Arc<watch::Sender<()>>,
    pub feed: Arc<Feed>,
    pub gossip: Arc<Gossip>,
    pub metrics: Arc<Metrics>,
    pub batch_max: usize,
    pub cached_rows: usize,
}

pub(super) struct Shard {
    parts: Parts,
    /// What this shard wrote last. Only ever a guess about what is there: a decision made on it counts
    /// only once a swap that compared the revision has succeeded.
    cache: LruCache<Key, Operation>,
    /// When an outage was logged last.
    outage_logged: Option<Instant>,
}

impl Shard {
    pub fn new(parts: Parts) -> Self {
        let rows = NonZeroUsize::new(parts.cached_rows).unwrap_or(NonZeroUsize::MIN);
        Self { parts, cache: LruCache::new(rows), outage_logged: None }
    }

    /// Runs until the queue is closed, or the engine stops and the queue is empty.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Job>, mut stopping: watch::Receiver<bool>) {
        let mut jobs: Vec<Job> = Vec::new();
        loop {
            if jobs.is_empty() {
                let next = tokio::select! {
                    biased;
                    job = queue.recv() => job,
                    () = super::stopped(&mut stopping) => {
                        queue.close();
                        queue.recv().await
                    }
                };
                match next {
                    Some(job) => jobs.push(job),
                    None => return,
                }
            }
            // Lets the calls that have arrived meanwhile join: a batch costs the database nearly as much as a
            // command. Where nothing else is ready this returns at once.
            tokio::task::yield_now().await;
            while jobs.len() < self.parts.batch_max
                && let Ok(job) = queue.try_recv()
            {
                jobs.push(job);
            }
            // Work whose caller has gone is not begun.
            jobs.retain(|job| !job.answer.is_closed());
            if !jobs.is_empty() {
                #[expect(clippy::cast_precision_loss, reason = "a batch has some hundred commands")]
                self.parts.metrics.batch_size.observe(jobs.len() as f64);
                jobs = self.batch(std::mem::take(&mut jobs)).await;
            }
        }
    }

    /// Carries out a batch; gives back the commands that must be decided again.
    async fn batch(&mut self, jobs: Vec<Job>) -> Vec<Job> {
        let mut groups = group_by_key(jobs);
        let decided_from = self.decide_from_memory(&mut groups);
        let (mut groups, loaded_at) = self.decide_from_store(groups).await;
        let Some(now) = decided_from.or(loaded_at) else {
            return Vec::new();
        };

        let mut again = Vec::new();
        let mut writing = Vec::new();
        for group in groups.drain(..) {
            match group.fold.as_ref().is_some_and(|fold| fold.write.is_some()) {
                true => writing.push(group),
                // Decided on a record just loaded, with nothing to write.
                false => group.answer(),
            }
        }
        if !writing.is_empty() {
            self.write(writing, DecidedAt { now, tolerance: TOLERANCE }, &mut again).await;
        }
        again
    }

    /// Decides what can be decided without a load: new keys, and records at hand. A decision that
    /// writes nothing is dropped again, for nothing would check that its record is current.
    fn decide_from_memory(&mut self, groups: &mut [Group]) -> Option<crate::ledger::Timestamp> {
        let now = self.parts.clock.now()?;
        let policies = self.parts.policies.current();
        let mut any = false;
        for group in groups.iter_mut().filter(|group| !group.must_load()) {
            let base = match self.cache.get(group.key()) {
                Some(operation) => Some(operation.clone()),
                None if group.may_be_new() => None,
                None => continue,
            };
            group.decide(base, &policies, now);
            if group.fold.as_ref().is_some_and(|fold| fold.write.is_none()) {
                group.fold = None;
            }
            any |= group.fold.is_some();
        }
        any.then_some(now)
    }

    /// Loads the records of the groups that are still undecided and decides them. Answers those whose
    /// record cannot be loaded.
    async fn decide_from_store(
        &mut self,
        groups: Vec<Group>,
    ) -> (Vec<Group>, Option<crate::ledger::Timestamp>) {
        let keys: Vec<Key> = groups.iter().filter(|g| g.fold.is_none()).map(|g| g.key().clone()).collect();
        if keys.is_empty() {
            return (groups, None);
        }
        match self.parts.store.load(&keys).await {
            Ok(snapshot) => {
                self.parts.clock.learn(snapshot.now);
                let policies = self.parts.policies.current();
                let mut rows = snapshot.rows.into_iter();
                let mut groups = groups;
                for group in groups.iter_mut().filter(|group| group.fold.is_none()) {
                    group.decide(rows.next().flatten(), &policies, snapshot.now);
                }
                (groups, Some(snapshot.now))
            }
            Err(error) => {
                let error = self.report(error);
                let (decided, undecided): (Vec<_>, Vec<_>) =
                    groups.into_iter().partition(|group| group.fold.is_some());
                for group in undecided {
                    group.fail(|| Error::Store(error.clone()));
                }
                (decided, None)
            }
        }
    }

    /// Writes the groups in one statement and answers them.
    async fn write(&mut self, mut groups: Vec<Group>, decided: DecidedAt, again: &mut Vec<Job>) {
        let mut writes = Vec::with_capacity(groups.len());
        for group in &mut groups {
            writes.extend(group.fold.as_mut().and_then(|fold| fold.write.take()));
        }
        match self.parts.store.swap(decided, &writes).await {
            Ok(swapped) => self.settle(groups, writes, &swapped, again),
            // A value that the database refuses must not fail its neighbours.
            Err(error) if matches!(error, store::Error::Data { .. }) && writes.len() > 1 => {
                for (mut group, write) in groups.into_iter().zip(writes) {
                    if let Some(fold) = &mut group.fold {
                        fold.write = Some(write);
                    }
                    Box::pin(self.write(vec![group], decided, again)).await;
                }
            }
            Err(error) => self.fail(groups, error, again),
        }
    }

    fn settle(&mut self, groups: Vec<Group>, writes: Vec<Write>, swapped: &Swapped, again: &mut Vec<Job>) {
        self.parts.clock.learn(swapped.now);
        let mut is_work_due = false;
        let mut changed = Vec::new();
        for ((mut group, write), written) in groups.into_iter().zip(writes).zip(&swapped.written) {
            if *written {
                self.count(&write);
                is_work_due |= has_work(&write);
                let hash = KeyHash::of(group.key());
                self.parts.waiters.wake(hash);
                // Elsewhere nobody waits for a new operation, nor for one that has just been taken.
                if write.expected.is_some() && write.after.state.status != Status::InProgress {
                    changed.push(hash);
                }
                self.remember(write.after);
                again.extend(group.take_undecided());
                group.answer();
            } else {
                self.parts.metrics.swaps_stale.inc();
                self.retry(group, again);
            }
        }
        if swapped.written.contains(&true) {
            self.parts.feed.stir();
            self.parts.gossip.note(changed.into_iter(), is_work_due);
        }
        if is_work_due {
            self.parts.due.send_replace(());
        }
    }

    /// The record was another one: decide again on what is there.
    fn retry(&mut self, group: Group, again: &mut Vec<Job>) {
        self.cache.pop(group.key());
        for mut job in group.jobs {
            job.tries += 1;
            if job.tries < TRIES_MAX {
                again.push(job);
            } else {
                drop(job.answer.send(Err(Error::Contended)));
            }
        }
    }

    /// The write failed, or nobody knows. Every command is safe to repeat: where the store may have done
    /// it, look once and decide again; otherwise the caller repeats it.
    fn fail(&mut self, groups: Vec<Group>, error: store::Error, again: &mut Vec<Job>) {
        let look_again = error.is_indeterminate() || error.is_retryable();
        let error = self.report(error);
        for mut group in groups {
            self.cache.pop(group.key());
            if look_again && group.jobs[0].tries == 0 {
                group.fold = None;
                self.retry(group, again);
            } else {
                group.fail(|| Error::Store(error.clone()));
            }
        }
    }

    /// Counts and logs a failure: once a while for an outage, each time for a value or a row that must be
    /// looked at.
    fn report(&mut self, error: store::Error) -> Arc<store::Error> {
        self.parts.metrics.store_failed(failure_of(&error));
        let is_outage =
            matches!(error, store::Error::Unavailable { .. } | store::Error::Indeterminate { .. });
        if !is_outage {
            tracing::error!(%error, "the store failed");
        } else if self.outage_logged.is_none_or(|at| at.elapsed() >= OUTAGE_LOG_INTERVAL) {
            self.outage_logged = Some(Instant::now());
            tracing::warn!(%error, "the store failed; callers are told to repeat (said again every 10 s at most)");
        }
        Arc::new(error)
    }

    /// Keeps what the next command will most likely need.
    fn remember(&mut self, operation: Operation) {
        let payload = operation.identity.payload_json.as_ref().map_or(0, String::len);
        if operation.state.status.is_terminal() || payload > CACHED_PAYLOAD_MAX {
            self.cache.pop(operation.key());
        } else {
            self.cache.put(operation.key().clone(), operation);
        }
    }

    fn count(&self, write: &Write) {
        let metrics = &self.parts.metrics;
        for event in &write.events {
            match event.kind {
                EventKind::LeaseExpired => _ = metrics.lease_expiries.inc(),
                EventKind::ConflictRefused => _ = metrics.conflicts_refused.inc(),
                EventKind::OutcomeConflict => _ = metrics.outcome_conflicts.inc(),
                EventKind::Succeeded | EventKind::FailedFinal => {
                    let succeeded = event.kind == EventKind::Succeeded;
                    metrics.operation_finished(&write.after.identity.action_type, succeeded);
                }
                _ => {}
            }
        }
    }
}

/// True where checkers or deliverers have something to do, now or some time.
fn has_work(write: &Write) -> bool {
    let due = write.due_after();
    due.changes_from(write.due_before)
        .any(|(kind, moment)| matches!(kind, DueKind::Check | DueKind::Deliver) && moment.is_some())
}

/// The label under which an error is counted.
fn failure_of(error: &store::Error) -> StoreFailure {
    match error {
        store::Error::Unavailable { .. } | store::Error::Data { .. } => StoreFailure::Determinate,
        store::Error::Indeterminate { .. } => StoreFailure::Indeterminate,
        store::Error::Corrupt { .. } => StoreFailure::Corrupt,
        store::Error::Schema { .. } => StoreFailure::Schema,
    }
}

/// Sorted by key, each key's commands in the order in which they came.
fn group_by_key(mut jobs: Vec<Job>) -> Vec<Group> {
    jobs.sort_by(|a, b| a.command.key.cmp(&b.command.key));
    let mut groups: Vec<Group> = Vec::with_capacity(jobs.len());
    for job in jobs {
        match groups.last_mut() {
            Some(group) if *group.key() == job.command.key => group.jobs.push(job),
            _ => groups.push(Group { jobs: vec![job], fold: None }),
        }
    }
    groups
}
