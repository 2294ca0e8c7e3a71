//! Dispatch and Renew: the holder keeps its lease.

use super::{Answer, claim, draft::Draft, expire};
use crate::ledger::{EventKind, Refusal, Reply, Timestamp, command::Extend, event::Detail};
use std::time::Duration;

/// About to send: from here on a lapse means that the outcome is unknown.
pub(super) fn dispatch(draft: &mut Draft, request: &Extend) -> Answer {
    let until = extended_end(draft, request)?;
    if draft.state().dispatched {
        let mut reply = draft.reply_to_holder();
        reply.replayed = true;
        return Ok(reply);
    }
    extend(draft, EventKind::Dispatched, until);
    Ok(draft.reply_to_holder())
}

/// Heartbeat.
pub(super) fn renew(draft: &mut Draft, request: &Extend) -> Answer {
    if draft.is_checker(&request.token) {
        return Ok(renew_check(draft, request));
    }
    let until = extended_end(draft, request)?;
    extend(draft, EventKind::Renewed, until);
    Ok(draft.reply_to_holder())
}

/// Heartbeat of a checker. A lease that nobody has taken over may still be extended.
fn renew_check(draft: &mut Draft, request: &Extend) -> Reply {
    let (now, policy) = (draft.now, draft.policy);
    draft.accept(EventKind::Renewed, Detail::default(), |state| {
        if let Some(lease) = &mut state.check_lease {
            let granted = Duration::from_millis(u64::try_from(lease.duration_ms).unwrap_or(0));
            let duration = claim::wished(request.lease_duration, granted, policy);
            lease.until = lease.until.max(now.plus(duration));
            state.next_check_at = Some(lease.until);
        }
    });
    let mut reply = draft.reply();
    reply.lease = draft.check_granted();
    reply
}

/// The new end of the holder's lease; never earlier than the old one. A lease that nobody has noticed
/// to be over may still be extended, unless the attempt has been under way for too long.
fn extended_end(draft: &mut Draft, request: &Extend) -> Result<Timestamp, Refusal> {
    let lease = draft.state().lease.clone().filter(|_| draft.is_holder(&request.token));
    let end = lease.map(|lease| {
        let duration = claim::wished(request.lease_duration, lease.duration(), draft.policy);
        let end = claim::lease_end(&draft.operation, draft.policy, lease.claimed_at, draft.now, duration);
        end.max(lease.until)
    });
    match end {
        Some(end) if end > draft.now => Ok(end),
        _ => {
            expire::notice(draft);
            Err(Refusal::LeaseLost)
        }
    }
}

fn extend(draft: &mut Draft, kind: EventKind, until: Timestamp) {
    draft.accept(kind, Detail::default(), |state| {
        state.dispatched |= kind == EventKind::Dispatched;
        if let Some(lease) = &mut state.lease {
            lease.until = until;
        }
    });
}
