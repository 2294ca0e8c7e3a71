//! The record of one operation.

use super::{
    lease::{CheckLease, Lease},
    report::Reports,
    timestamp::Timestamp,
};
use std::{collections::BTreeMap, fmt, sync::Arc};
use uuid::Uuid;

/// What names an operation: a namespace and the operation key in it.
///
/// Ordered by namespace, then key: batches are sorted by it, so that two replicas never wait for
/// each other's rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace; never empty ("default" where the caller gave none).
    pub namespace: Arc<str>,
    /// The stable name of the intention, made once by the orchestrator's code.
    pub operation_key: Arc<str>,
}

impl Key {
    /// A key from texts that were checked against [`super::limits`].
    #[must_use]
    pub fn new(namespace: &str, operation_key: &str) -> Self {
        Self { namespace: namespace.into(), operation_key: operation_key.into() }
    }
}

/// Where an operation stands. Stored as [`Status::as_str`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Registered; nobody may act yet, nothing was sent.
    Pending,
    /// One caller holds the lease and may act.
    InProgress,
    /// The effect may or may not have happened.
    Unknown,
    /// The effect happened. Final.
    Succeeded,
    /// The effect did not happen and never will. Final.
    FailedFinal,
}

impl Status {
    /// All statuses.
    pub const ALL: [Status; 5] =
        [Status::Pending, Status::InProgress, Status::Unknown, Status::Succeeded, Status::FailedFinal];

    /// The text in the database and in JSON output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::InProgress => "in_progress",
            Status::Unknown => "unknown",
            Status::Succeeded => "succeeded",
            Status::FailedFinal => "failed_final",
        }
    }

    /// The status with this text, if there is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// True for the two statuses that nothing leaves.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Status::Succeeded | Status::FailedFinal)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is written once, when the operation is registered.
#[derive(Clone, PartialEq)]
pub struct Identity {
    /// Namespace and operation key.
    pub key: Key,
    /// UUIDv7: the receipt a caller can hold.
    pub operation_id: Uuid,
    /// Which tool; selects the policy.
    pub action_type: Arc<str>,
    /// SHA-256 of the canonical request.
    pub request_hash: [u8; 32],
    /// How `request_hash` was made: [`crate::fingerprint::SCHEME`] today.
    pub hash_scheme: Arc<str>,
    /// For finding it again; no part of the identity of the request.
    pub labels: BTreeMap<String, String>,
    /// The operation that this one is a part of.
    pub parent_operation_key: Option<String>,
    /// The request as it was sent, only where the caller asked to store it, and until it is forgotten.
    pub payload_json: Option<String>,
    /// Random bytes from which this operation's lease tokens are derived. Secret.
    pub lease_secret: [u8; 16],
    /// When it was registered.
    pub created_at: Timestamp,
}

/// What changes: each accepted change makes a new state with the next version.
#[derive(Clone, PartialEq)]
pub struct State {
    /// Where it stands.
    pub status: Status,
    /// Grows by one with each accepted change; 1 after Register.
    pub version: i64,
    /// Permissions to act that were ever granted.
    pub attempt_count: i32,
    /// Attempts that `max_attempts` no longer counts, because a person released the operation after them.
    pub attempt_floor: i32,
    /// The claim ids of the latest attempts, oldest first: a claim id names one attempt at most.
    pub claim_ids: Vec<Uuid>,
    /// The current attempt's lease; only while in progress.
    pub lease: Option<Lease>,
    /// False only for a two-step attempt that has not been told to be on its way, and before the
    /// first attempt.
    pub dispatched: bool,
    /// The provider's name for the effect.
    pub external_id: Option<String>,
    /// What a replay returns, byte for byte as given. May be secret.
    pub result_json: Option<String>,
    /// Why it failed or became unknown, as a short code.
    pub error_code: Option<String>,
    /// Why it failed or became unknown, for people.
    pub error_message: Option<String>,
    /// When the first attempt was granted.
    pub first_attempt_at: Option<Timestamp>,
    /// When the last attempt's lease ended or it was marked unknown.
    pub attempt_ended_at: Option<Timestamp>,
    /// Since when an attempt's outcome has been unknown. Kept while a later attempt with the same
    /// key is under way: that one's end without a trace does not make the earlier one known.
    pub unknown_since: Option<Timestamp>,
    /// When an unknown operation counts as unresolved; none once that has been acted on.
    pub escalate_at: Option<Timestamp>,
    /// When the provider should be asked next.
    pub next_check_at: Option<Timestamp>,
    /// When a deliverer should take it; only while pending with a stored payload.
    pub deliver_at: Option<Timestamp>,
    /// Observations that did not settle it, since it last became unknown.
    pub check_count: i32,
    /// The checker's lease that was granted last, while its report has not come; only while unknown.
    pub check_lease: Option<CheckLease>,
    /// Checkers' leases that were ever granted.
    pub check_lease_count: i32,
    /// The poll that took the current lease, attempt's or checker's, so that its repeat gets it again.
    pub poll_id: Option<Uuid>,
    /// A person must decide, because …
    pub review_reason: Option<String>,
    /// Since when a person must decide.
    pub review_since: Option<Timestamp>,
    /// Requests refused because they differ from this one. Beyond the first hundred only counted.
    pub conflict_count: i32,
    /// Contradicting outcomes that were reported.
    pub outcome_conflict_count: i32,
    /// Reports whose repeat is recognised.
    pub reports: Reports,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it became terminal.
    pub completed_at: Option<Timestamp>,
    /// When retention looks at it next; none where the policy keeps all for ever. Planned from the policy,
    /// so events do not carry it.
    pub retain_until: Option<Timestamp>,
    /// When the result, the payload and the events up to then were deleted.
    pub result_forgotten_at: Option<Timestamp>,
}

/// The record of one operation: the part written once, shared, and the part that changes.
#[derive(Clone, PartialEq)]
pub struct Operation {
    /// Written once.
    pub identity: Arc<Identity>,
    /// Changes.
    pub state: State,
}

/// What storage compares before it writes: the version, and the counter that grows without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    /// [`State::version`].
    pub version: i64,
    /// [`State::conflict_count`].
    pub conflict_count: i32,
}

impl Operation {
    /// The operation's name.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.identity.key
    }

    /// What storage compares before it writes this record's successor.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision { version: self.state.version, conflict_count: self.state.conflict_count }
    }

    /// True where a person must decide.
    #[must_use]
    pub fn review_required(&self) -> bool {
        self.state.review_reason.is_some()
    }
}

// By hand: payload, result and lease secret must not be printed.
impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("key", &self.identity.key)
            .field("status", &self.state.status)
            .field("version", &self.state.version)
            .field("attempt_count", &self.state.attempt_count)
            .field("lease", &self.state.lease)
            .field("unknown_since", &self.state.unknown_since)
            .field("review_reason", &self.state.review_reason)
            .finish_non_exhaustive()
    }
}
