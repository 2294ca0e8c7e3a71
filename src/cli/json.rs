//! Answers as JSON, in the form that protobuf gives them (and grpcurl shows): camelCase names,
//! enum values by name, RFC 3339 times, 64-bit integers as texts, since JavaScript rounds them.
//! `resultJson`, `payloadJson` and `detailJson` stay texts: parsing would change their bytes.

use crate::proto::{Event, EventType, NextStep, Operation, OperationStatus};
use serde::Serialize;
use std::collections::BTreeMap;

/// See [`Operation`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationJson<'a> {
    namespace: &'a str,
    operation_key: &'a str,
    operation_id: &'a str,
    action_type: &'a str,
    request_hash: &'a str,
    hash_scheme: &'a str,
    status: &'static str,
    version: String,
    attempt_count: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_json: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_holder: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_since_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_check_time: Option<String>,
    check_count: i32,
    review_required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    review_reason: Option<&'a str>,
    // Sorted, so that two runs print the same text.
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_operation_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_json: Option<&'a str>,
    dispatched: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    complete_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_forget_time: Option<String>,
}

impl<'a> From<&'a Operation> for OperationJson<'a> {
    fn from(operation: &'a Operation) -> Self {
        let time = |time: &Option<prost_types::Timestamp>| time.as_ref().map(ToString::to_string);
        Self {
            namespace: &operation.namespace,
            operation_key: &operation.operation_key,
            operation_id: &operation.operation_id,
            action_type: &operation.action_type,
            request_hash: &operation.request_hash,
            hash_scheme: &operation.hash_scheme,
            status: operation.status().as_str_name(),
            version: operation.version.to_string(),
            attempt_count: operation.attempt_count,
            external_id: operation.external_id.as_deref(),
            result_json: operation.result_json.as_deref(),
            error_code: operation.error_code.as_deref(),
            error_message: operation.error_message.as_deref(),
            lease_holder: operation.lease_holder.as_deref(),
            lease_expire_time: time(&operation.lease_expire_time),
            unknown_since_time: time(&operation.unknown_since_time),
            next_check_time: time(&operation.next_check_time),
            check_count: operation.check_count,
            review_required: operation.review_required,
            review_reason: operation.review_reason.as_deref(),
            labels: operation.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
            parent_operation_key: operation.parent_operation_key.as_deref(),
            payload_json: operation.payload_json.as_deref(),
            dispatched: operation.dispatched,
            create_time: time(&operation.create_time),
            update_time: time(&operation.update_time),
            complete_time: time(&operation.complete_time),
            result_forget_time: time(&operation.result_forget_time),
        }
    }
}

/// An operation with what may be done about it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerJson<'a> {
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationJson<'a>>,
    /// Reconcile: the observation settled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<bool>,
    /// Reconcile: it had been reported before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
    /// What may be done now.
    pub next_step: &'static str,
    /// How long to wait before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
}

impl<'a> AnswerJson<'a> {
    /// An answer of which only this is known.
    pub fn new(operation: Option<&'a Operation>, next_step: NextStep) -> Self {
        Self {
            operation: operation.map(OperationJson::from),
            applied: None,
            replayed: None,
            next_step: next_step.as_str_name(),
            retry_after: None,
        }
    }
}

/// See [`Event`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventJson<'a> {
    sequence: String,
    operation_key: &'a str,
    version: String,
    r#type: &'static str,
    status: &'static str,
    attempt: i32,
    actor: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail_json: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time: Option<String>,
}

impl<'a> From<&'a Event> for EventJson<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            sequence: event.sequence.to_string(),
            operation_key: &event.operation_key,
            version: event.version.to_string(),
            r#type: EventType::try_from(event.r#type).unwrap_or_default().as_str_name(),
            status: OperationStatus::try_from(event.status).unwrap_or_default().as_str_name(),
            attempt: event.attempt,
            actor: &event.actor,
            detail_json: event.detail_json.as_deref(),
            event_time: event.event_time.as_ref().map(ToString::to_string),
        }
    }
}

/// One line of JSON.
pub fn text(value: &impl Serialize) -> String {
    // Structs with text keys cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_integers_are_texts_and_results_stay_as_they_are() {
        let operation = Operation {
            operation_key: "k".into(),
            status: OperationStatus::Succeeded as i32,
            version: 9_007_199_254_740_993,
            result_json: Some("{\"b\": 1.0, \"a\": 2}".into()),
            create_time: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 5_000 }),
            ..Operation::default()
        };
        let json: serde_json::Value = serde_json::from_str(&text(&OperationJson::from(&operation))).unwrap();
        assert_eq!(json["version"], "9007199254740993");
        assert_eq!(json["status"], "OPERATION_STATUS_SUCCEEDED");
        assert_eq!(json["resultJson"], "{\"b\": 1.0, \"a\": 2}");
        assert_eq!(json["createTime"], "2023-11-14T22:13:20.000005Z");
        assert!(json.get("externalId").is_none());
    }
}
