//! What has to happen to an operation, and when, if nobody says anything.
//!
//! These moments live in a small side table, written together with the record: an index on the
//! record itself that mentions status or time would cost half of the write rate.

use uuid::Uuid;

use super::{
    operation::{Operation, Status},
    timestamp::Timestamp,
};

/// A kind of due work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DueKind {
    /// The sweeper has to look: a lease ends, or an unknown operation counts as unresolved.
    Sweep,
    /// The provider has to be asked.
    Check,
    /// The operation waits for a deliverer.
    Deliver,
    /// A person has to decide; due since.
    Review,
    /// Retention has to look: the result, or the key, of a finished operation is no longer kept.
    Retain,
}

impl DueKind {
    /// All kinds.
    pub const ALL: [DueKind; 5] =
        [DueKind::Sweep, DueKind::Check, DueKind::Deliver, DueKind::Review, DueKind::Retain];

    /// The text in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            DueKind::Sweep => "sweep",
            DueKind::Check => "check",
            DueKind::Deliver => "deliver",
            DueKind::Review => "review",
            DueKind::Retain => "retain",
        }
    }
}

/// One piece of due work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueMoment {
    /// When it is due.
    pub at: Timestamp,
    /// The poll that holds the lease whose end this is.
    pub poll_id: Option<Uuid>,
    /// Since when the outcome has been unknown, where it is: the figures are read from here alone.
    pub unknown_since: Option<Timestamp>,
}

/// The due work of one operation: at most one moment of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    moments: [Option<DueMoment>; 5],
}

impl Due {
    /// What is due for this record.
    #[must_use]
    pub fn of(operation: &Operation) -> Self {
        let state = &operation.state;
        let sweep = match state.status {
            Status::InProgress => state.lease.as_ref().map(|lease| lease.until),
            Status::Unknown => state.escalate_at,
            _ => None,
        };
        let check = if state.status == Status::Unknown { state.next_check_at } else { None };
        let deliver = state.deliver_at.filter(|_| state.review_reason.is_none());
        // What a person still has to decide is never forgotten.
        let retain =
            state.retain_until.filter(|_| state.status.is_terminal() && state.review_reason.is_none());
        let unknown_since = state.unknown_since.filter(|_| state.status == Status::Unknown);
        let plain = |at: Timestamp| DueMoment { at, poll_id: None, unknown_since };
        let held = |at: Timestamp| DueMoment { poll_id: state.poll_id, ..plain(at) };
        let sweep = match state.status {
            Status::InProgress => sweep.map(held),
            _ => sweep.map(plain),
        };
        let review = state.review_since.map(plain);
        Self { moments: [sweep, check.map(held), deliver.map(plain), review, retain.map(plain)] }
    }

    /// The moment of one kind.
    #[must_use]
    pub fn get(&self, kind: DueKind) -> Option<DueMoment> {
        self.moments[kind as usize]
    }

    /// What must be written to get from `before` to `self`: a moment to set, or none to delete.
    pub fn changes_from(self, before: Due) -> impl Iterator<Item = (DueKind, Option<DueMoment>)> {
        DueKind::ALL
            .into_iter()
            .filter(move |kind| self.get(*kind) != before.get(*kind))
            .map(move |kind| (kind, self.get(kind)))
    }
}
