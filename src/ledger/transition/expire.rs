//! What time alone does: a lease lapses, an unknown operation counts as unresolved.

use super::{draft::Draft, schedule};
use crate::ledger::{
    EventKind, Policy, ReportDigest, State, Status, Timestamp,
    event::Detail,
    policy::{OnTimeout, OnUnresolved},
};
use uuid::Uuid;

/// Everything that the time has brought about.
pub(super) fn notice(draft: &mut Draft) {
    if !notice_lapse(draft) {
        notice_unresolved(draft);
    }
}

/// A lapsed lease: the outcome is unknown, whoever notices it first. Only a two-step attempt that was
/// never dispatched has provably sent nothing, and goes back. True where something changed.
pub(super) fn notice_lapse(draft: &mut Draft) -> bool {
    let Some(lease) = draft.state().lease.as_ref().filter(|lease| !lease.is_live(draft.now)) else {
        return false;
    };
    let ended = lease.until;
    if draft.state().dispatched {
        let (id, policy, now) = (draft.operation_id(), draft.policy, draft.now);
        draft.accept(EventKind::LeaseExpired, because("lease_expired"), |state| {
            enter_unknown(state, id, policy, ended, now);
            state.error_code = Some("lease_expired".into());
        });
    } else {
        release(draft, EventKind::LeaseExpired, because("undispatched"), ended, None);
    }
    true
}

/// An operation that stayed unknown too long: a person must look.
fn notice_unresolved(draft: &mut Draft) {
    let now = draft.now;
    if is_unresolved(draft.state(), now) {
        draft.accept(EventKind::Escalated, because("unresolved"), |state| {
            require_review(state, "unresolved", now);
        });
    }
}

fn is_unresolved(state: &State, now: Timestamp) -> bool {
    state.status == Status::Unknown && state.escalate_at.is_some_and(|at| at <= now)
}

/// The current attempt's outcome is unknown since `since`; found out `now`, which may be so late that it
/// counts as unresolved already.
pub(super) fn enter_unknown(state: &mut State, id: Uuid, policy: &Policy, since: Timestamp, now: Timestamp) {
    state.status = Status::Unknown;
    state.lease = None;
    state.attempt_ended_at = Some(since);
    let unknown_since = *state.unknown_since.get_or_insert(since);
    state.check_count = 0;
    state.poll_id = None;
    state.next_check_at = Some(since.plus(schedule::delay(id, policy, 0)));
    state.escalate_at = match policy.on_unresolved {
        OnUnresolved::RequireHumanReview => Some(unknown_since.plus(policy.unknown_after)),
        OnUnresolved::KeepUnknown => None,
    };
    if policy.on_timeout == OnTimeout::RequireHumanReview {
        require_review(state, "policy", since);
    } else if is_unresolved(state, now) {
        require_review(state, "unresolved", now);
    }
}

/// A person must decide. Checks go on: what the provider says may settle it first.
pub(super) fn require_review(state: &mut State, reason: &str, since: Timestamp) {
    if state.review_reason.is_none() {
        state.review_reason = Some(reason.into());
        state.review_since = Some(since);
    }
    state.escalate_at = None;
}

/// The current attempt sent nothing. It goes back to pending, unless an earlier attempt with the same
/// key is unknown: that one may have had its effect all the same.
pub(super) fn release(
    draft: &mut Draft,
    kind: EventKind,
    detail: Detail,
    ended: Timestamp,
    report: Option<ReportDigest>,
) {
    let (id, policy, now) = (draft.operation_id(), draft.policy, draft.now);
    let deliver_at = next_delivery(draft);
    draft.accept(kind, detail, |state| {
        state.reports.remember(report);
        if state.unknown_since.is_some() {
            enter_unknown(state, id, policy, ended, now);
        } else {
            enter_pending(state, deliver_at);
            state.attempt_ended_at = Some(ended);
        }
    });
}

/// When a deliverer should try again: later each time, so that a provider that cannot be reached does
/// not use up the attempts in a moment.
pub(super) fn next_delivery(draft: &Draft) -> Option<Timestamp> {
    let done = (draft.state().attempt_count - draft.state().attempt_floor).max(1);
    let delay = schedule::delay(draft.operation_id(), draft.policy, done - 1);
    draft.operation.identity.payload_json.is_some().then(|| draft.now.plus(delay))
}

/// Nothing is under way and nothing is unknown.
pub(super) fn enter_pending(state: &mut State, deliver_at: Option<Timestamp>) {
    state.status = Status::Pending;
    state.deliver_at = deliver_at;
    state.lease = None;
    state.dispatched = false;
    state.unknown_since = None;
    state.next_check_at = None;
    state.escalate_at = None;
    state.check_count = 0;
    state.check_lease = None;
    state.poll_id = None;
    state.review_reason = None;
    state.review_since = None;
    // A name that the provider once gave stays: should another one come, a person must know of both.
    state.error_code = None;
    state.error_message = None;
}

/// A detail that says why.
pub(super) fn because(reason: &str) -> Detail {
    Detail { reason: Some(reason.into()), ..Detail::default() }
}
