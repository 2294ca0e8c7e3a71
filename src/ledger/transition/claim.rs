//! Claim: the permission to act, to one caller at a time.

use super::{Answer, draft::Draft, expire, next_step, register};
use crate::ledger::{
    ClaimOptions, EventKind, Lease, NextStep, Operation, Policy, Reply, Status, Timestamp,
    command::Claim,
    event::Detail,
    limits::{CLAIM_IDS_KEPT, LEASE_MIN},
};
use std::time::Duration;

pub(super) fn claim(draft: &mut Draft, request: &Claim) -> Answer {
    expire::notice(draft);
    if let Some(hash) = &request.expected_request_hash {
        register::refuse_other_request(draft, None, hash)?;
    }
    Ok(take(draft, &request.options))
}

/// Grants the lease if nothing stands against it; otherwise the answer says what to do instead.
pub(super) fn take(draft: &mut Draft, options: &ClaimOptions) -> Reply {
    let state = draft.state();
    if state.claim_ids.contains(&options.claim_id) {
        // A repeat. It gets its lease again; once that is gone it gets nothing: a claim id names one
        // attempt at most, so that a late repeat cannot begin a second one.
        let is_latest = state.claim_ids.last() == Some(&options.claim_id);
        let mut reply = if is_latest && state.status == Status::InProgress {
            draft.reply_to_holder()
        } else {
            draft.reply()
        };
        reply.replayed = true;
        return reply;
    }
    if next_step(&draft.operation, draft.policy, draft.now) != NextStep::Claim {
        return draft.reply();
    }
    // A deliverer takes what is due for delivery, and nothing else.
    if options.poll_id.is_some() && state.deliver_at.is_none_or(|at| at > draft.now) {
        return draft.reply();
    }
    if state.attempt_count - state.attempt_floor >= draft.policy.max_attempts {
        let now = draft.now;
        draft.accept(EventKind::Escalated, expire::because("max_attempts"), |state| {
            expire::require_review(state, "max_attempts", now);
        });
        return draft.reply();
    }
    grant(draft, options);
    draft.reply_to_holder()
}

fn grant(draft: &mut Draft, options: &ClaimOptions) {
    let (now, policy) = (draft.now, draft.policy);
    let duration = wished(options.lease_duration, policy.lease_default, policy);
    let until = lease_end(&draft.operation, policy, now, now, duration);
    draft.accept(EventKind::Claimed, Detail::default(), |state| {
        state.status = Status::InProgress;
        state.attempt_count += 1;
        state.lease = Some(Lease {
            holder: options.worker_id.clone(),
            claimed_at: now,
            until,
            duration_ms: i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
            two_step: options.two_step,
        });
        state.dispatched = !options.two_step;
        state.first_attempt_at.get_or_insert(now);
        state.next_check_at = None;
        state.deliver_at = None;
        state.check_lease = None;
        state.poll_id = options.poll_id;
        state.escalate_at = None;
        state.error_code = None;
        state.error_message = None;
        if state.claim_ids.len() >= CLAIM_IDS_KEPT {
            state.claim_ids.remove(0);
        }
        state.claim_ids.push(options.claim_id);
    });
}

/// The duration a caller gets: what it asked for within the policy's limit, or `otherwise`.
pub(super) fn wished(wish: Option<Duration>, otherwise: Duration, policy: &Policy) -> Duration {
    wish.unwrap_or(otherwise).max(LEASE_MIN).min(policy.lease_max)
}

/// The end of a lease of `duration` from `now`: never past the time at which the attempt counts as
/// unknown, nor (a further attempt with the same key) past the provider's memory of that key.
pub(super) fn lease_end(
    operation: &Operation,
    policy: &Policy,
    claimed_at: Timestamp,
    now: Timestamp,
    duration: Duration,
) -> Timestamp {
    let state = &operation.state;
    let mut end = now.plus(duration).min(claimed_at.plus(policy.unknown_after));
    if state.unknown_since.is_some()
        && let (Some(first), Some(ttl)) = (state.first_attempt_at, policy.idempotency_key_ttl)
    {
        end = end.min(first.plus(ttl));
    }
    end
}
