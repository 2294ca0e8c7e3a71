//! The ledger's types as messages. The one place that knows both sets of names.

use crate::{
    ledger::{Event, EventKind, Granted, NextStep, Operation, Status, Timestamp},
    proto,
    store::StoredEvent,
};
use std::time::Duration;

pub(super) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.0.div_euclid(1_000_000),
        nanos: i32::try_from(at.0.rem_euclid(1_000_000) * 1000).unwrap_or(0),
    }
}

pub(super) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

pub(super) fn status(status: Status) -> proto::OperationStatus {
    match status {
        Status::Pending => proto::OperationStatus::Pending,
        Status::InProgress => proto::OperationStatus::InProgress,
        Status::Unknown => proto::OperationStatus::Unknown,
        Status::Succeeded => proto::OperationStatus::Succeeded,
        Status::FailedFinal => proto::OperationStatus::FailedFinal,
    }
}

/// The status that a filter names; none for the unspecified and for values of a later version.
pub(super) fn status_from(value: i32) -> Option<Status> {
    Status::ALL.into_iter().find(|known| status(*known) as i32 == value)
}

pub(super) fn next_step(step: NextStep) -> i32 {
    let step = match step {
        NextStep::Execute => proto::NextStep::Execute,
        NextStep::Claim => proto::NextStep::Claim,
        NextStep::Wait => proto::NextStep::Wait,
        NextStep::Reconcile => proto::NextStep::Reconcile,
        NextStep::UseResult => proto::NextStep::UseResult,
        NextStep::Stop => proto::NextStep::Stop,
        NextStep::Review => proto::NextStep::Review,
    };
    step.into()
}

fn event_type(kind: EventKind) -> proto::EventType {
    match kind {
        EventKind::Registered => proto::EventType::Registered,
        EventKind::Claimed => proto::EventType::Claimed,
        EventKind::Dispatched => proto::EventType::Dispatched,
        EventKind::Renewed => proto::EventType::Renewed,
        EventKind::Succeeded => proto::EventType::Succeeded,
        EventKind::FailedFinal => proto::EventType::FailedFinal,
        EventKind::MarkedUnknown => proto::EventType::MarkedUnknown,
        EventKind::LeaseExpired => proto::EventType::LeaseExpired,
        EventKind::Released => proto::EventType::Released,
        EventKind::Checked => proto::EventType::Checked,
        EventKind::Escalated => proto::EventType::Escalated,
        EventKind::ConflictRefused => proto::EventType::ConflictRefused,
        EventKind::OutcomeConflict => proto::EventType::OutcomeConflict,
        EventKind::ResultForgotten => proto::EventType::ResultForgotten,
        EventKind::CheckClaimed => proto::EventType::CheckClaimed,
    }
}

pub(super) fn lease(granted: Granted) -> proto::Lease {
    proto::Lease {
        token: granted.token.expose().to_owned(),
        attempt: granted.attempt,
        expire_time: Some(timestamp(granted.until)),
        duration: Some(duration(granted.remaining)),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn operation(operation: Operation) -> proto::Operation {
    let Operation { identity, state } = operation;
    let review_required = state.review_reason.is_some();
    let (lease_holder, lease_until) = match (state.lease, state.check_lease) {
        (Some(lease), _) => (Some(lease.holder), Some(lease.until)),
        (None, Some(lease)) => (Some(lease.holder), Some(lease.until)),
        (None, None) => (None, None),
    };
    proto::Operation {
        namespace: identity.key.namespace.as_ref().to_owned(),
        operation_key: identity.key.operation_key.as_ref().to_owned(),
        operation_id: identity.operation_id.to_string(),
        action_type: identity.action_type.as_ref().to_owned(),
        request_hash: hex(&identity.request_hash),
        hash_scheme: identity.hash_scheme.as_ref().to_owned(),
        status: status(state.status).into(),
        version: state.version,
        attempt_count: state.attempt_count,
        external_id: state.external_id,
        result_json: state.result_json,
        error_code: state.error_code,
        error_message: state.error_message,
        lease_holder: lease_holder.filter(|holder| !holder.is_empty()),
        lease_expire_time: lease_until.map(timestamp),
        unknown_since_time: state.unknown_since.map(timestamp),
        next_check_time: state.next_check_at.map(timestamp),
        check_count: state.check_count,
        review_required,
        review_reason: state.review_reason,
        labels: identity.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        parent_operation_key: identity.parent_operation_key.clone(),
        payload_json: identity.payload_json.clone(),
        dispatched: state.dispatched,
        create_time: Some(timestamp(identity.created_at)),
        update_time: Some(timestamp(state.updated_at)),
        complete_time: state.completed_at.map(timestamp),
        result_forget_time: state.result_forgotten_at.map(timestamp),
    }
}

pub(super) fn event(stored: StoredEvent) -> proto::Event {
    let Event { version, kind, status: after, attempt, actor, at, detail } = stored.event;
    let detail_json = serde_json::to_string(&detail).ok().filter(|text| text != "{}");
    proto::Event {
        sequence: stored.sequence,
        operation_key: stored.operation_key,
        version,
        r#type: event_type(kind).into(),
        status: status(after).into(),
        attempt,
        actor: actor.as_ref().to_owned(),
        detail_json,
        event_time: Some(timestamp(at)),
    }
}
