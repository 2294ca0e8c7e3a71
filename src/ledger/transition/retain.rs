//! What the policy no longer keeps of a finished operation: first its result, then its key.

use super::draft::Draft;
use crate::ledger::{Policy, State, Timestamp, event::Detail};
use std::{sync::Arc, time::Duration};

/// A policy that keeps everything may be a slip: what was planned to be forgotten is looked at again after
/// this time, rather than kept for ever whatever the policy says later.
const LOOK_AGAIN: Duration = days(30);

/// When retention has something to do with a finished operation, by this policy.
pub(super) fn planned(state: &State, completed_at: Timestamp, policy: &Policy) -> Option<Timestamp> {
    let result_days = policy.result_days.filter(|_| state.result_forgotten_at.is_none());
    result_days.or(policy.key_days).map(|count| completed_at.plus(days(count)))
}

const fn days(count: u32) -> Duration {
    Duration::from_secs(count as u64 * 86_400)
}

/// Forgets the result once its time has come. True where the key's time has come: then everything goes.
///
/// The policy of today decides, not that of the day on which the operation finished.
pub(super) fn notice(draft: &mut Draft) -> bool {
    let (now, state) = (draft.now, draft.state());
    let is_due = state.retain_until.is_some_and(|at| at <= now);
    let (true, false, Some(completed_at)) = (is_due, draft.operation.review_required(), state.completed_at)
    else {
        return false;
    };
    match planned(state, completed_at, draft.policy) {
        Some(at) if at <= now => {
            let keeps_result = state.result_forgotten_at.is_none();
            if keeps_result && draft.policy.result_days.is_some() {
                forget_result(draft, completed_at);
                return false;
            }
            true
        }
        later => {
            let later = later.unwrap_or(now.plus(LOOK_AGAIN));
            draft.amend(|state| state.retain_until = Some(later));
            false
        }
    }
}

fn forget_result(draft: &mut Draft, completed_at: Timestamp) {
    if draft.operation.identity.payload_json.is_some() {
        Arc::make_mut(&mut draft.operation.identity).payload_json = None;
    }
    let (now, policy) = (draft.now, draft.policy);
    let forget = |state: &mut State| {
        state.result_json = None;
        state.error_message = None;
        state.result_forgotten_at = Some(now);
        state.retain_until = planned(state, completed_at, policy);
    };
    let mut after = draft.state().clone();
    forget(&mut after);
    let image = Detail::image(draft.operation.identity.created_at, &after);
    draft.accept(crate::ledger::EventKind::ResultForgotten, image, forget);
}
