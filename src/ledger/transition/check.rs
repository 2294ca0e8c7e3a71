//! ClaimCheck: one checker at a time asks the provider about an unknown operation.

use super::{Answer, claim, draft::Draft, expire};
use crate::ledger::{CheckLease, EventKind, Status, command::ClaimCheck, event::Detail};

/// Grants the lease where a check is due; otherwise the answer carries none. The lease's end is the next
/// check: a checker that dies makes the operation due again.
pub(super) fn claim(draft: &mut Draft, request: &ClaimCheck) -> Answer {
    expire::notice(draft);
    let (now, policy) = (draft.now, draft.policy);
    let state = draft.state();
    let held = state.check_lease.as_ref().is_some_and(|lease| lease.is_live(now));
    if held {
        let mut reply = draft.reply();
        if state.poll_id == Some(request.poll_id) {
            reply.lease = draft.check_granted();
            reply.replayed = true;
        }
        return Ok(reply);
    }
    let is_due = state.status == Status::Unknown && state.next_check_at.is_some_and(|at| at <= now);
    if !is_due {
        return Ok(draft.reply());
    }
    let duration = claim::wished(request.lease_duration, policy.lease_default, policy);
    let until = now.plus(duration);
    draft.accept(EventKind::CheckClaimed, Detail::default(), |state| {
        state.check_lease_count = state.check_lease_count.saturating_add(1);
        state.check_lease = Some(CheckLease {
            holder: request.worker_id.clone(),
            until,
            duration_ms: i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
        });
        state.next_check_at = Some(until);
        state.poll_id = Some(request.poll_id);
    });
    let mut reply = draft.reply();
    reply.lease = draft.check_granted();
    Ok(reply)
}
