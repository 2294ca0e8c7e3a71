//! Register: record the intention, or recognise it.

use super::{Answer, claim, draft::Draft, expire};
use crate::ledger::{
    Command, Decision, EventKind, Identity, Operation, Policy, Refusal, State, Timestamp, command::Register,
    event::Detail, limits::CONFLICT_EVENTS_KEPT,
};
use std::sync::Arc;

/// The key is free.
pub(super) fn new(request: &Register, command: &Command, policy: &Policy, now: Timestamp) -> Decision {
    let identity = Identity {
        key: command.key.clone(),
        operation_id: request.operation_id,
        action_type: request.action_type.clone(),
        request_hash: request.request_hash,
        hash_scheme: request.hash_scheme.clone(),
        labels: request.labels.clone(),
        parent_operation_key: request.parent_operation_key.clone(),
        payload_json: request.payload_json.clone(),
        lease_secret: request.lease_secret,
        created_at: now,
    };
    let unborn = Operation { identity: Arc::new(identity), state: State::unborn(now) };
    let mut draft = Draft::of(&unborn, command, policy, now);
    draft.accept(EventKind::Registered, Detail::default(), |state| {
        state.deliver_at = request.payload_json.is_some().then_some(now);
    });
    let mut reply = match &request.claim {
        Some(options) => claim::take(&mut draft, options),
        None => draft.reply(),
    };
    reply.created = true;
    draft.decide(Ok(reply))
}

/// The key is taken: by the same request (a replay, whatever became of it) or by another one.
pub(super) fn existing(draft: &mut Draft, request: &Register) -> Answer {
    expire::notice(draft);
    let identity = draft.operation.identity.clone();
    refuse_other_request(draft, Some(&request.action_type), &request.request_hash)?;
    // The record is this very call's own where a first try was committed and its answer never came.
    let own = identity.operation_id == request.operation_id;
    let mut reply = match &request.claim {
        Some(options) => claim::take(draft, options),
        None => draft.reply(),
    };
    reply.created = own;
    reply.replayed = !own;
    Ok(reply)
}

/// Refuses a request that is not the recorded one, and notes it.
pub(super) fn refuse_other_request(
    draft: &mut Draft,
    action_type: Option<&str>,
    request_hash: &[u8; 32],
) -> Result<(), Refusal> {
    let identity = &draft.operation.identity;
    let action_type_differs = action_type.is_some_and(|action_type| *action_type != *identity.action_type);
    if !action_type_differs && *request_hash == identity.request_hash {
        return Ok(());
    }
    let reason = if action_type_differs { "action_type" } else { "request_hash" };
    let keep_event = draft.state().conflict_count < CONFLICT_EVENTS_KEPT;
    draft.note_conflict(expire::because(reason), keep_event);
    Err(Refusal::RequestHashMismatch { action_type_differs })
}
