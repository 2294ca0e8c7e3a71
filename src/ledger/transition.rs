//! The state machine: one pure function, one module per row of its table.
//!
//! `docs/state-machine.md` shows the table; `tests/it/state_table.rs` holds every cell of it.

mod check;
mod claim;
mod complete;
mod draft;
mod expire;
mod extend;
mod mark_unknown;
mod reconcile;
mod register;
mod retain;
mod schedule;

use super::{
    Action, Command, Decision, NextStep, Operation, Policy, Refusal, Status, Timestamp, policy::OnTimeout,
};
use draft::Draft;

/// Decides one command.
///
/// `current` is the record or none, `policy` that of the record's action type (of the command's, where
/// there is no record), `now` the database's clock. The same arguments give the same decision, always.
#[must_use]
pub fn transition(
    current: Option<&Operation>,
    command: &Command,
    policy: &Policy,
    now: Timestamp,
) -> Decision {
    let mut draft = match (current, &command.action) {
        (Some(operation), _) => Draft::of(operation, command, policy, now),
        (None, Action::Register(request)) => return register::new(request, command, policy, now),
        (None, _) => return draft::not_found(),
    };
    let answer = match &command.action {
        Action::Register(request) => register::existing(&mut draft, request),
        Action::Claim(request) => claim::claim(&mut draft, request),
        Action::Dispatch(request) => extend::dispatch(&mut draft, request),
        Action::Renew(request) => extend::renew(&mut draft, request),
        Action::Complete(request) => complete::complete(&mut draft, request),
        Action::MarkUnknown(request) => mark_unknown::mark_unknown(&mut draft, request),
        Action::Reconcile(request) => reconcile::reconcile(&mut draft, request),
        Action::ClaimCheck(request) => check::claim(&mut draft, request),
        Action::Observe => {
            expire::notice(&mut draft);
            if retain::notice(&mut draft) {
                return draft.forget_key();
            }
            Ok(draft.reply())
        }
    };
    draft.decide(answer)
}

/// The one thing that a caller who holds no lease may do now.
#[must_use]
pub fn next_step(operation: &Operation, policy: &Policy, now: Timestamp) -> NextStep {
    let state = &operation.state;
    match state.status {
        Status::Succeeded => NextStep::UseResult,
        Status::FailedFinal => NextStep::Stop,
        _ if operation.review_required() => NextStep::Review,
        Status::Pending => NextStep::Claim,
        Status::InProgress => NextStep::Wait,
        Status::Unknown if same_key_is_safe(operation, policy, now) => NextStep::Claim,
        Status::Unknown => NextStep::Reconcile,
    }
}

/// True while the provider still remembers the first attempt's key, where the policy says that it does.
fn same_key_is_safe(operation: &Operation, policy: &Policy, now: Timestamp) -> bool {
    let (OnTimeout::RetrySameKey, Some(ttl), Some(first)) =
        (policy.on_timeout, policy.idempotency_key_ttl, operation.state.first_attempt_at)
    else {
        return false;
    };
    now < first.plus(ttl)
}

/// A row's answer: what to tell the caller, or why not.
type Answer = Result<super::Reply, Refusal>;
