//! Complete: the outcome is known. Also what Complete and Reconcile have in common.

use super::{Answer, draft::Draft, expire, retain};
use crate::{
    fingerprint,
    ledger::{
        EventKind, Outcome, Policy, Refusal, ReportDigest, State, Status, Timestamp, command::Complete,
        event::Detail, limits::CONFLICT_EVENTS_KEPT,
    },
};

pub(super) fn complete(draft: &mut Draft, request: &Complete) -> Answer {
    admit_result(draft, &request.outcome, "succeeded.result_json")?;
    let Some(attempt) = draft.attempt_of(&request.token) else {
        expire::notice(draft);
        return Err(Refusal::LeaseLost);
    };
    let report = Report { attempt: Some(attempt), ..Report::default() };
    if let Some(answer) = repeat_or_contradiction(draft, &request.outcome, report) {
        return answer;
    }
    // A success is believed from every attempt ever granted: evidence of an effect is never lost. A
    // failure only from the latest, and not once that was released or an older one asks.
    let is_latest = attempt == draft.state().attempt_count && draft.state().status != Status::Pending;
    if matches!(request.outcome, Outcome::Failed { .. }) && !is_latest {
        expire::notice(draft);
        return Err(Refusal::LeaseLost);
    }
    let detail = Detail { reported_attempt: Some(attempt), ..Detail::default() };
    settle(draft, &request.outcome, detail);
    Ok(draft.reply())
}

/// Refuses a result that the policy does not take.
pub(super) fn admit_result(draft: &Draft, outcome: &Outcome, field: &'static str) -> Result<(), Refusal> {
    let max = draft.policy.result_max_bytes;
    match outcome {
        Outcome::Succeeded { result_json: Some(text), .. } if text.len() > max => {
            Err(Refusal::InvalidField {
                field,
                description: format!(
                    "has {} bytes, the policy of this action type takes {max} (result.max_bytes): keep what a \
                 replay needs",
                    text.len()
                ),
            })
        }
        _ => Ok(()),
    }
}

/// A reported outcome, beside the outcome itself.
#[derive(Default)]
pub(super) struct Report {
    /// The attempt whose token it carried.
    pub attempt: Option<i32>,
    /// See [`State::reports`].
    pub digest: Option<ReportDigest>,
    /// What is kept about it.
    pub detail: Detail,
}

/// True where a finished operation has this outcome.
pub(super) fn agrees(state: &State, outcome: &Outcome) -> bool {
    match (state.status, outcome) {
        // A report without an external id contradicts nothing, and fills nothing in.
        (Status::Succeeded, Outcome::Succeeded { external_id, .. }) => {
            external_id.is_none() || *external_id == state.external_id
        }
        (Status::FailedFinal, Outcome::Failed { .. }) => true,
        _ => false,
    }
}

/// The answer to an outcome that is reported for a finished operation; none where it is not finished.
pub(super) fn repeat_or_contradiction(
    draft: &mut Draft,
    outcome: &Outcome,
    report: Report,
) -> Option<Answer> {
    let state = draft.state();
    if !state.status.is_terminal() {
        return None;
    }
    if !agrees(state, outcome) {
        note_contradiction(draft, outcome, report);
        return Some(Err(Refusal::OutcomeConflict));
    }
    // A provider names a failure in its own words; an executor repeats its own.
    if let Outcome::Failed { error_code, .. } = outcome
        && report.attempt.is_some()
        && state.error_code.as_ref() != Some(error_code)
    {
        return Some(Err(Refusal::AlreadyTerminal));
    }
    let mut reply = draft.reply();
    reply.replayed = true;
    reply.applied = true;
    Some(Ok(reply))
}

/// Keeps a contradicting report as an event and calls a person. The first hundred of an operation; after
/// that only what raises the flag again.
pub(super) fn note_contradiction(draft: &mut Draft, outcome: &Outcome, report: Report) {
    let state = draft.state();
    if state.outcome_conflict_count >= CONFLICT_EVENTS_KEPT && state.review_reason.is_some() {
        return;
    }
    let now = draft.now;
    let mut detail = Detail { reported_attempt: report.attempt, ..report.detail };
    match outcome {
        Outcome::Succeeded { external_id, .. } => {
            detail.reported = Some("succeeded".into());
            detail.reported_external_id.clone_from(external_id);
        }
        Outcome::Failed { error_code, .. } => {
            detail.reported = Some("failed".into());
            detail.reported_error_code = Some(error_code.clone());
        }
    }
    draft.accept(EventKind::OutcomeConflict, detail, |state| {
        state.outcome_conflict_count = state.outcome_conflict_count.saturating_add(1);
        // So that the same decision again is told the same, and does not acknowledge its own contradiction.
        state.reports.remember(report.digest);
        expire::require_review(state, "outcome_conflict", now);
    });
}

/// The outcome is known: final.
pub(super) fn settle(draft: &mut Draft, outcome: &Outcome, detail: Detail) {
    let (now, policy) = (draft.now, draft.policy);
    let redact = &policy.result_redact;
    match outcome.clone() {
        Outcome::Succeeded { external_id, result_json } => {
            let result_json = result_json.map(|text| fingerprint::redact(&text, redact));
            draft.accept(EventKind::Succeeded, detail, |state| {
                let named_before = state.external_id.take();
                finish(state, Status::Succeeded, policy, now);
                // Two names are two effects until a person says otherwise. The event has the new one, the
                // events before it the old one.
                if external_id.is_some() && named_before.is_some() && external_id != named_before {
                    expire::require_review(state, "second_external_id", now);
                }
                state.external_id = external_id.or(named_before);
                state.result_json = result_json;
                state.error_code = None;
                state.error_message = None;
            });
        }
        Outcome::Failed { error_code, error_message } => {
            draft.accept(EventKind::FailedFinal, detail, |state| {
                finish(state, Status::FailedFinal, policy, now);
                state.error_code = Some(error_code);
                state.error_message = error_message;
            });
        }
    }
}

fn finish(state: &mut State, status: Status, policy: &Policy, now: Timestamp) {
    state.status = status;
    state.completed_at = Some(now);
    state.retain_until = retain::planned(state, now, policy);
    state.lease = None;
    state.deliver_at = None;
    state.check_lease = None;
    state.poll_id = None;
    state.unknown_since = None;
    state.next_check_at = None;
    state.escalate_at = None;
    state.review_reason = None;
    state.review_since = None;
}
