//! The journal of one operation: one event for each accepted change, in its own words.

use super::{
    command::Evidence,
    lease::{CheckLease, Lease},
    operation::{Identity, Operation, State, Status},
    report::Reports,
    timestamp::Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The intention was recorded.
    Registered,
    /// A caller got the permission to act.
    Claimed,
    /// A two-step attempt was told to be on its way.
    Dispatched,
    /// The holder extended its lease.
    Renewed,
    /// The effect is known to have happened.
    Succeeded,
    /// The effect is known never to happen.
    FailedFinal,
    /// The outcome is unknown, said the caller or a checker.
    MarkedUnknown,
    /// The lease ended without a word.
    LeaseExpired,
    /// The effect is known not to have happened; it may be tried again.
    Released,
    /// The provider was asked and the answer settled nothing; or a person looked.
    Checked,
    /// A person must decide.
    Escalated,
    /// Another request under the same key was refused.
    ConflictRefused,
    /// An outcome was reported that contradicts the recorded one.
    OutcomeConflict,
    /// The result is no longer kept.
    ResultForgotten,
    /// A checker got the lease to ask the provider.
    CheckClaimed,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 15] = [
        EventKind::Registered,
        EventKind::Claimed,
        EventKind::Dispatched,
        EventKind::Renewed,
        EventKind::Succeeded,
        EventKind::FailedFinal,
        EventKind::MarkedUnknown,
        EventKind::LeaseExpired,
        EventKind::Released,
        EventKind::Checked,
        EventKind::Escalated,
        EventKind::ConflictRefused,
        EventKind::OutcomeConflict,
        EventKind::ResultForgotten,
        EventKind::CheckClaimed,
    ];

    /// The text in the database and in JSON output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EventKind::Registered => "registered",
            EventKind::Claimed => "claimed",
            EventKind::Dispatched => "dispatched",
            EventKind::Renewed => "renewed",
            EventKind::Succeeded => "succeeded",
            EventKind::FailedFinal => "failed_final",
            EventKind::MarkedUnknown => "marked_unknown",
            EventKind::LeaseExpired => "lease_expired",
            EventKind::Released => "released",
            EventKind::Checked => "checked",
            EventKind::Escalated => "escalated",
            EventKind::ConflictRefused => "conflict_refused",
            EventKind::OutcomeConflict => "outcome_conflict",
            EventKind::ResultForgotten => "result_forgotten",
            EventKind::CheckClaimed => "check_claimed",
        }
    }

    /// The kind with this text, if there is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The operation's version after it; unchanged for a refusal.
    pub version: i64,
    /// What happened.
    pub kind: EventKind,
    /// The operation's status after it.
    pub status: Status,
    /// The operation's attempt count after it.
    pub attempt: i32,
    /// Who did it: the authenticated principal, or `system:…`.
    pub actor: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// The fields that it changed, and what was said about it.
    pub detail: Detail,
}

/// The fields that an event changed, with their new values, and what was said about it.
///
/// No payload, no result, no token. Stored and served as JSON; times are microseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// A lease was granted or extended, or ended (null).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub lease: Option<Option<Lease>>,
    /// See [`State::dispatched`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatched: Option<bool>,
    /// See [`State::attempt_floor`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_floor: Option<i32>,
    /// See [`State::external_id`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub external_id: Option<Option<String>>,
    /// See [`State::error_code`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub error_code: Option<Option<String>>,
    /// See [`State::error_message`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub error_message: Option<Option<String>>,
    /// See [`State::attempt_ended_at`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub attempt_ended_at: Option<Option<Timestamp>>,
    /// See [`State::unknown_since`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub unknown_since: Option<Option<Timestamp>>,
    /// See [`State::escalate_at`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub escalate_at: Option<Option<Timestamp>>,
    /// See [`State::next_check_at`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub next_check_at: Option<Option<Timestamp>>,
    /// See [`State::deliver_at`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub deliver_at: Option<Option<Timestamp>>,
    /// See [`State::check_count`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_count: Option<i32>,
    /// A checker's lease was granted, extended or ended (null).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub check_lease: Option<Option<CheckLease>>,
    /// See [`State::check_lease_count`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_lease_count: Option<i32>,
    /// See [`State::review_reason`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub review_reason: Option<Option<String>>,
    /// See [`State::review_since`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub review_since: Option<Option<Timestamp>>,
    /// See [`State::outcome_conflict_count`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome_conflict_count: Option<i32>,
    /// See [`State::conflict_count`]; only where the events before are no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict_count: Option<i32>,
    /// See [`State::first_attempt_at`]; only where the events before are no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_attempt_at: Option<Timestamp>,
    /// See [`State::completed_at`]; only where the events before are no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Why it happened, as a short code: `lease_expired`, `undispatched`, `max_attempts`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a checker or a caller reported: `succeeded`, `failed`, `absent`, `indeterminate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<String>,
    /// The external id that was reported and not recorded (outcome conflicts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_external_id: Option<String>,
    /// The error code that was reported and not recorded (outcome conflicts).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_error_code: Option<String>,
    /// The attempt whose token the report carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_attempt: Option<i32>,
    /// Where an observation comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// A person decided.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub operator_decision: bool,
}

/// Tells `null` (cleared) from a missing member (unchanged).
fn present<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

/// Runs `$each!(field)` for the fields that a detail carries exactly as the state has them.
macro_rules! for_each_carried_field {
    ($each:ident) => {
        $each!(
            lease,
            dispatched,
            attempt_floor,
            external_id,
            error_code,
            error_message,
            attempt_ended_at,
            unknown_since,
            escalate_at,
            next_check_at,
            deliver_at,
            check_count,
            check_lease,
            check_lease_count,
            review_reason,
            review_since,
            outcome_conflict_count
        )
    };
}

impl Detail {
    /// Adds the carried fields in which `after` differs from `before`.
    #[must_use]
    pub fn with_changes(mut self, before: &State, after: &State) -> Self {
        macro_rules! each {
            ($($field:ident),*) => {$(
                if before.$field != after.$field {
                    self.$field = Some(after.$field.clone());
                }
            )*};
        }
        for_each_carried_field!(each);
        self
    }

    /// All that the events before this one said of the record: they are deleted, and [`replay`] begins here.
    #[must_use]
    pub fn image(created_at: Timestamp, state: &State) -> Self {
        Self {
            conflict_count: Some(state.conflict_count),
            first_attempt_at: state.first_attempt_at,
            completed_at: state.completed_at,
            ..Self::default().with_changes(&State::unborn(created_at), state)
        }
    }
}

impl State {
    /// The state of an operation of which nothing has been said yet; version 0.
    #[must_use]
    pub fn unborn(at: Timestamp) -> Self {
        Self {
            status: Status::Pending,
            version: 0,
            attempt_count: 0,
            attempt_floor: 0,
            claim_ids: Vec::new(),
            lease: None,
            dispatched: false,
            external_id: None,
            result_json: None,
            error_code: None,
            error_message: None,
            first_attempt_at: None,
            attempt_ended_at: None,
            unknown_since: None,
            escalate_at: None,
            next_check_at: None,
            deliver_at: None,
            check_count: 0,
            check_lease: None,
            check_lease_count: 0,
            poll_id: None,
            review_reason: None,
            review_since: None,
            conflict_count: 0,
            outcome_conflict_count: 0,
            reports: Reports::default(),
            updated_at: at,
            completed_at: None,
            retain_until: None,
            result_forgotten_at: None,
        }
    }
}

/// Rebuilds a record from its identity and its events, in order.
///
/// Gives all but what events never carry: the result, the claim and poll ids, the digest of the last report,
/// when retention looks next, and the count of conflicts beyond those that were kept.
#[must_use]
pub fn replay<'a>(identity: Arc<Identity>, events: impl IntoIterator<Item = &'a Event>) -> Operation {
    let mut state = State::unborn(identity.created_at);
    for event in events {
        if event.kind == EventKind::ConflictRefused {
            state.conflict_count += 1;
            continue;
        }
        let detail = &event.detail;
        if event.kind == EventKind::ResultForgotten {
            state = State {
                conflict_count: detail.conflict_count.unwrap_or(0),
                first_attempt_at: detail.first_attempt_at,
                completed_at: detail.completed_at,
                result_forgotten_at: Some(event.at),
                ..State::unborn(identity.created_at)
            };
        }
        macro_rules! each {
            ($($field:ident),*) => {$(
                if let Some(value) = &detail.$field {
                    state.$field = value.clone();
                }
            )*};
        }
        for_each_carried_field!(each);
        state.status = event.status;
        state.version = event.version;
        state.attempt_count = event.attempt;
        state.updated_at = event.at;
        if event.kind == EventKind::Claimed {
            state.first_attempt_at.get_or_insert(event.at);
        }
        if event.status.is_terminal() {
            state.completed_at.get_or_insert(event.at);
        }
    }
    Operation { identity, state }
}
