//! MarkUnknown: the caller does not know what became of its attempt.

use super::{Answer, complete, draft::Draft, expire};
use crate::ledger::{EventKind, Outcome, Refusal, Status, command::MarkUnknown, event::Detail};

pub(super) fn mark_unknown(draft: &mut Draft, request: &MarkUnknown) -> Answer {
    let attempt = draft.attempt_of(&request.token);
    if !draft.is_holder(&request.token) {
        expire::notice(draft);
        if attempt.is_some() {
            keep_external_id(draft, request, attempt);
        }
        return match draft.state().status {
            _ if attempt.is_none() => Err(Refusal::LeaseLost),
            Status::Succeeded | Status::FailedFinal => Err(Refusal::AlreadyTerminal),
            Status::Unknown => {
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
        if state.external_id.is_none() {
            state.external_id.clone_from(&request.external_id);
        }
    });
    keep_external_id(draft, request, attempt);
    Ok(draft.reply())
}

/// The provider's name for the effect is what a checker needs most, so it is kept however late it comes: where
/// there is none yet, in the record; where there is another, as an event that calls a person, for two names
/// are two effects until somebody says otherwise.
fn keep_external_id(draft: &mut Draft, request: &MarkUnknown, attempt: Option<i32>) {
    let state = draft.state();
    let Some(named) = &request.external_id else { return };
    match &state.external_id {
        Some(known) if known == named => {}
        None if !state.status.is_terminal() => {
            draft.accept(EventKind::MarkedUnknown, expire::because("external_id"), |state| {
                state.external_id = Some(named.clone());
            });
        }
        _ => {
            let outcome = Outcome::Succeeded { external_id: Some(named.clone()), result_json: None };
            complete::note_contradiction(draft, &outcome, complete::Report { attempt, ..Default::default() });
        }
    }
}
