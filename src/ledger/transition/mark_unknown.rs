//! MarkUnknown: the caller does not know what became of its attempt.

use super::{Answer, draft::Draft, expire};
use crate::ledger::{EventKind, Refusal, Status, command::MarkUnknown, event::Detail};

pub(super) fn mark_unknown(draft: &mut Draft, request: &MarkUnknown) -> Answer {
    let attempt = draft.attempt_of(&request.token);
    if !draft.is_holder(&request.token) {
        expire::notice(draft);
        let state = draft.state();
        return match state.status {
            _ if attempt.is_none() => Err(Refusal::LeaseLost),
            Status::Succeeded | Status::FailedFinal => Err(Refusal::AlreadyTerminal),
            Status::Unknown => {
                if attempt == Some(state.attempt_count) {
                    keep_external_id(draft, request);
                }
                let mut reply = draft.reply();
                reply.replayed = true;
                Ok(reply)
            }
            Status::Pending | Status::InProgress => Err(Refusal::LeaseLost),
        };
    }
    let (id, policy, now) = (draft.operation_id(), draft.policy, draft.now);
    draft.accept(EventKind::MarkedUnknown, Detail::default(), |state| {
        // A lease that was over already ended then, not now.
        let ended = state.lease.as_ref().map_or(now, |lease| lease.until.min(now));
        expire::enter_unknown(state, id, policy, ended, now);
        state.error_code = Some(request.error_code.clone());
        state.error_message.clone_from(&request.error_message);
        if request.external_id.is_some() {
            state.external_id.clone_from(&request.external_id);
        }
    });
    Ok(draft.reply())
}

/// The lapse was noticed before the caller could say what it knew: the provider's name for the effect is
/// what a checker needs most, so it is kept.
fn keep_external_id(draft: &mut Draft, request: &MarkUnknown) {
    if request.external_id.is_some() && draft.state().external_id.is_none() {
        let report = draft.state().last_report;
        draft.accept(EventKind::MarkedUnknown, expire::because("external_id"), |state| {
            state.external_id.clone_from(&request.external_id);
            state.last_report = report;
        });
    }
}
