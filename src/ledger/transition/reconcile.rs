//! Reconcile: what the provider, or a person, says about the effect.

use super::{Answer, complete, draft::Draft, expire, schedule};
use crate::ledger::{
    EventKind, LeaseToken, Observation, Outcome, Policy, Refusal, ReportDigest, Status, Timestamp,
    command::Reconcile,
    event::Detail,
    policy::{Lookup, OnTimeout, OnUnresolved},
};
use sha2::{Digest, Sha256};
use std::time::Duration;

pub(super) fn reconcile(draft: &mut Draft, request: &Reconcile) -> Answer {
    if let Observation::Known(outcome) = &request.observation {
        complete::admit_result(draft, outcome, "succeeded.result_json")?;
    }
    let report = digest(request);
    if report.is_some_and(|report| draft.state().reports.contains(report)) {
        if let Observation::Known(outcome) = &request.observation
            && draft.operation.review_required()
            && !complete::agrees(draft.state(), outcome)
        {
            return Err(Refusal::OutcomeConflict);
        }
        let mut reply = draft.reply();
        reply.replayed = true;
        reply.applied = draft.state().status != Status::Unknown;
        return Ok(reply);
    }
    let holder = request.token.as_ref().is_some_and(|token| draft.is_holder(token));
    if !holder {
        match request.observation {
            Observation::Known(_) => drop(expire::notice_lapse(draft)),
            Observation::Absent | Observation::Indeterminate { .. } => expire::notice(draft),
        }
    }
    let is_settled = draft.state().status.is_terminal();
    let acknowledges = is_settled && request.operator_decision && draft.operation.review_required();
    // An outcome reported for a finished operation is a repeat or a contradiction, whatever version it was
    // decided on: neither may be lost.
    if acknowledges || !(is_settled && matches!(request.observation, Observation::Known(_))) {
        check_version(draft, request.if_version)?;
    }
    let detail = Detail {
        evidence: request.evidence.clone(),
        operator_decision: request.operator_decision,
        ..Detail::default()
    };
    if acknowledges {
        acknowledge(draft, &request.observation, detail, report);
        return Ok(applied(draft));
    }
    match &request.observation {
        Observation::Known(outcome) => known(draft, outcome, holder, detail, report),
        Observation::Absent => absent(draft, request, holder, detail, report),
        Observation::Indeterminate { check_after } => {
            indeterminate(draft, request, *check_after, holder, detail, report)
        }
    }
}

fn applied(draft: &Draft) -> crate::ledger::Reply {
    let mut reply = draft.reply();
    // An attempt that sent nothing settles nothing where an earlier one is still unknown.
    reply.applied = draft.state().status != Status::Unknown;
    reply
}

fn check_version(draft: &Draft, if_version: Option<i64>) -> Result<(), Refusal> {
    match if_version {
        Some(version) if version != draft.state().version => Err(Refusal::VersionMismatch),
        _ => Ok(()),
    }
}

/// A person has seen a contradiction. The recorded outcome stays.
fn acknowledge(draft: &mut Draft, observation: &Observation, detail: Detail, report: Option<ReportDigest>) {
    let detail = Detail { reason: Some("acknowledged".into()), reported: Some(word(observation)), ..detail };
    draft.accept(EventKind::Checked, detail, |state| {
        state.review_reason = None;
        state.review_since = None;
        state.reports.remember(report);
    });
}

fn known(
    draft: &mut Draft,
    outcome: &Outcome,
    holder: bool,
    detail: Detail,
    report: Option<ReportDigest>,
) -> Answer {
    let told = complete::Report { attempt: None, digest: report, detail: detail.clone() };
    if let Some(answer) = complete::repeat_or_contradiction(draft, outcome, told) {
        return answer;
    }
    // Somebody is acting just now: only that caller can say that there will be no effect.
    let is_held = draft.state().status == Status::InProgress && !holder;
    if is_held && matches!(outcome, Outcome::Failed { .. }) {
        return Err(Refusal::LeaseLost);
    }
    complete::settle(draft, outcome, detail);
    Ok(applied(draft))
}

fn absent(
    draft: &mut Draft,
    request: &Reconcile,
    holder: bool,
    detail: Detail,
    report: Option<ReportDigest>,
) -> Answer {
    let detail = Detail { reported: Some("absent".into()), ..detail };
    let now = draft.now;
    let lease_is_live = draft.state().lease.as_ref().is_some_and(|lease| lease.is_live(now));
    match draft.state().status {
        Status::Succeeded | Status::FailedFinal => Err(Refusal::AlreadyTerminal),
        Status::Pending if request.operator_decision && draft.operation.review_required() => {
            release_by_person(draft, detail, report);
            Ok(applied(draft))
        }
        Status::Pending => {
            let mut reply = draft.reply();
            reply.replayed = true;
            reply.applied = draft.state().attempt_count > 0;
            Ok(reply)
        }
        Status::InProgress if holder && lease_is_live => {
            expire::release(draft, EventKind::Released, detail, now, report);
            Ok(applied(draft))
        }
        Status::InProgress if holder => {
            // Said by the executor, but after its lease was over: an observation like any other.
            expire::notice(draft);
            absent(draft, request, false, detail, report)
        }
        Status::InProgress => Err(Refusal::LeaseLost),
        Status::Unknown => {
            refuse_stale(draft, request.token.as_ref())?;
            if request.operator_decision {
                release_by_person(draft, detail, report);
                return Ok(applied(draft));
            }
            let observed =
                request.evidence.as_ref().and_then(|e| e.observed_at).map_or(now, |at| at.min(now));
            let settled_at = draft.state().attempt_ended_at.map(|at| at.plus(draft.policy.absence_settle));
            if is_believed(draft.policy, settled_at, observed) {
                let deliver_at = expire::next_delivery(draft);
                draft.accept(EventKind::Released, detail, |state| {
                    expire::enter_pending(state, deliver_at);
                    state.reports.remember(report);
                });
                return Ok(applied(draft));
            }
            keep_checking(draft, detail, None, settled_at, report);
            Ok(draft.reply())
        }
    }
}

/// An absence counts only where the look-up is complete and current, and was made late enough that a
/// request still under way would have arrived.
fn is_believed(policy: &Policy, settled_at: Option<Timestamp>, observed: Timestamp) -> bool {
    policy.lookup == Lookup::Authoritative
        && policy.on_timeout != OnTimeout::RequireHumanReview
        && settled_at.is_none_or(|at| at <= observed)
}

/// A person says that nothing happened: it may be tried again, with a fresh count of attempts.
fn release_by_person(draft: &mut Draft, detail: Detail, report: Option<ReportDigest>) {
    // Whoever decided that it may be tried again means now.
    let deliver_at = draft.operation.identity.payload_json.is_some().then_some(draft.now);
    draft.accept(EventKind::Released, detail, |state| {
        expire::enter_pending(state, deliver_at);
        state.attempt_floor = state.attempt_count;
        state.reports.remember(report);
    });
}

fn indeterminate(
    draft: &mut Draft,
    request: &Reconcile,
    check_after: Option<Duration>,
    holder: bool,
    detail: Detail,
    report: Option<ReportDigest>,
) -> Answer {
    let detail = Detail { reported: Some("indeterminate".into()), ..detail };
    let (id, policy, now) = (draft.operation_id(), draft.policy, draft.now);
    match draft.state().status {
        Status::Succeeded | Status::FailedFinal => return Err(Refusal::AlreadyTerminal),
        Status::Pending => {}
        Status::InProgress if holder => {
            draft.accept(EventKind::MarkedUnknown, detail, |state| {
                let ended = state.lease.as_ref().map_or(now, |lease| lease.until.min(now));
                expire::enter_unknown(state, id, policy, ended, now);
                if let Some(after) = check_after {
                    state.next_check_at = Some(now.plus(after));
                }
                state.reports.remember(report);
            });
        }
        Status::InProgress => return Err(Refusal::LeaseLost),
        Status::Unknown if request.operator_decision => keep_waiting(draft, check_after, detail, report),
        Status::Unknown => {
            refuse_stale(draft, request.token.as_ref())?;
            keep_checking(draft, detail, check_after, None, report);
        }
    }
    Ok(draft.reply())
}

/// The answer settled nothing: ask again later.
fn keep_checking(
    draft: &mut Draft,
    detail: Detail,
    check_after: Option<Duration>,
    not_before: Option<Timestamp>,
    report: Option<ReportDigest>,
) {
    let checks = draft.state().check_count.saturating_add(1);
    let delay = check_after.unwrap_or_else(|| schedule::delay(draft.operation_id(), draft.policy, checks));
    let mut next = draft.now.plus(delay);
    if draft.policy.lookup == Lookup::Authoritative {
        next = next.max(not_before.unwrap_or(next));
    }
    draft.accept(EventKind::Checked, detail, |state| {
        state.check_count = checks;
        state.check_lease = None;
        state.poll_id = None;
        state.next_check_at = Some(next);
        state.reports.remember(report);
    });
}

/// A person says: wait. The review is over until the window has passed once more.
fn keep_waiting(
    draft: &mut Draft,
    check_after: Option<Duration>,
    detail: Detail,
    report: Option<ReportDigest>,
) {
    let (now, policy) = (draft.now, draft.policy);
    let checks = draft.state().check_count.saturating_add(1);
    let delay = check_after.unwrap_or_else(|| schedule::delay(draft.operation_id(), policy, 0));
    draft.accept(EventKind::Checked, detail, |state| {
        state.check_count = checks;
        state.check_lease = None;
        state.poll_id = None;
        state.next_check_at = Some(now.plus(delay));
        state.review_reason = None;
        state.review_since = None;
        if policy.on_unresolved == OnUnresolved::RequireHumanReview {
            state.escalate_at = Some(now.plus(policy.unknown_after.max(delay)));
        }
        state.reports.remember(report);
    });
}

/// A token may be left out. A checker's must be that of its lease, not yet taken over by another; an
/// executor's that of the latest attempt: what an earlier one knows says nothing about the later.
fn refuse_stale(draft: &Draft, token: Option<&LeaseToken>) -> Result<(), Refusal> {
    let latest = Some(draft.state().attempt_count);
    match token {
        Some(token) if draft.attempt_of(token) != latest && !draft.is_checker(token) => {
            Err(Refusal::LeaseLost)
        }
        _ => Ok(()),
    }
}

fn word(observation: &Observation) -> String {
    let word = match observation {
        Observation::Known(Outcome::Succeeded { .. }) => "succeeded",
        Observation::Known(Outcome::Failed { .. }) => "failed",
        Observation::Absent => "absent",
        Observation::Indeterminate { .. } => "indeterminate",
    };
    word.into()
}

/// What tells one report from another, where the caller tied it to a version or an attempt, or is a
/// person: only then can two equal reports not be two observations.
fn digest(request: &Reconcile) -> Option<ReportDigest> {
    if request.if_version.is_none() && request.token.is_none() && !request.operator_decision {
        return None;
    }
    let mut digest = Sha256::new();
    let mut part = |text: &str| {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    };
    part(&word(&request.observation));
    match &request.observation {
        Observation::Known(Outcome::Succeeded { external_id, .. }) => {
            part(external_id.as_deref().unwrap_or(""))
        }
        Observation::Known(Outcome::Failed { error_code, .. }) => part(error_code),
        Observation::Absent => {}
        Observation::Indeterminate { check_after } => part(&format!("{check_after:?}")),
    }
    if let Some(evidence) = &request.evidence {
        part(&evidence.source);
        part(evidence.detail_json.as_deref().unwrap_or(""));
        part(&format!("{:?}", evidence.observed_at));
    }
    part(request.token.as_ref().map_or("", LeaseToken::expose));
    part(&format!("{:?} {}", request.if_version, request.operator_decision));
    let hash = digest.finalize();
    Some(ReportDigest::new(
        std::array::from_fn(|at| hash[at]),
        matches!(request.observation, Observation::Absent),
    ))
}
