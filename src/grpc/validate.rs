//! Checks every field of a request and names all faults at once.

use crate::{
    engine::{Poll, feed::Watch},
    fingerprint,
    ledger::{
        ClaimOptions, DueKind, Evidence, Key, LeaseToken, Observation, Outcome, Policy, Timestamp,
        command::{Claim, Complete, Extend, MarkUnknown, Reconcile, Register},
        limits,
    },
    proto,
    store::PollQuery,
};
use std::{collections::BTreeMap, collections::HashMap, sync::Arc, time::Duration};
use tonic_types::FieldViolation;
use uuid::Uuid;

/// The longest `wait` that a call takes.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);
const EVIDENCE_DETAIL_MAX: usize = 16 * 1024;

/// The faults found so far.
#[derive(Default)]
pub(super) struct Faults(pub Vec<FieldViolation>);

impl Faults {
    pub fn add(&mut self, field: &str, description: impl Into<String>) {
        self.0.push(FieldViolation::new(field, description));
    }

    fn note(&mut self, field: &str, outcome: Result<(), limits::Fault>) {
        if let Err(description) = outcome {
            self.add(field, description);
        }
    }

    pub fn key(&mut self, namespace: &str, operation_key: &str) -> Key {
        self.note("operation_key", limits::operation_key(operation_key));
        Key::new(self.namespace(namespace), operation_key)
    }

    pub fn namespace<'a>(&mut self, namespace: &'a str) -> &'a str {
        if namespace.is_empty() {
            return limits::DEFAULT_NAMESPACE;
        }
        self.note("namespace", limits::namespace(namespace));
        namespace
    }

    fn text(&mut self, field: &str, text: &str, max: usize) {
        self.note(field, limits::text(text, max));
    }

    fn optional(&mut self, field: &str, text: Option<&String>, max: usize) {
        if let Some(text) = text {
            match text.is_empty() {
                true => self.add(field, "must not be empty where it is set: leave it out"),
                false => self.text(field, text, max),
            }
        }
    }

    /// The parent's key, by the rule of keys.
    pub fn parent(&mut self, key: Option<&String>) {
        if let Some(key) = key {
            self.note("parent_operation_key", limits::operation_key(key));
        }
    }

    pub fn action_type(&mut self, field: &str, text: &str) {
        self.note(field, limits::action_type(text));
    }

    fn json(&mut self, field: &str, text: Option<&String>) {
        if let Some(text) = text
            && let Err(fault) = fingerprint::check(text)
        {
            self.add(field, fault.to_string());
        }
    }

    pub fn uuid(&mut self, field: &str, text: &str) -> Uuid {
        match Uuid::try_parse(text) {
            Ok(uuid) if !uuid.is_nil() => uuid,
            _ => {
                self.add(field, "must be a UUID, such as 0196f0c4-7f6e-7c3a-9d43-2f6d1e0a5b11");
                Uuid::nil()
            }
        }
    }

    /// A duration between zero and a year; mixed signs and fields out of range are refused, not guessed.
    pub fn duration(&mut self, field: &str, value: Option<&prost_types::Duration>) -> Option<Duration> {
        let value = value?;
        let duration = match (u64::try_from(value.seconds), u32::try_from(value.nanos)) {
            (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Some(Duration::new(seconds, nanos)),
            _ => None,
        };
        match duration.filter(|duration| *duration <= limits::DURATION_MAX) {
            Some(duration) => Some(duration),
            None => {
                self.add(field, "must be a duration from 0 s to 366 days, with nanos from 0 to 999999999");
                None
            }
        }
    }

    fn lease_duration(&mut self, field: &str, value: Option<&prost_types::Duration>) -> Option<Duration> {
        let duration = self.duration(field, value)?;
        if duration < limits::LEASE_MIN {
            self.add(field, "must be at least 100 ms: leave it out for the default");
        }
        Some(duration)
    }

    /// How long a call may wait; zero where it is unset.
    pub fn wait(&mut self, value: Option<&prost_types::Duration>) -> Duration {
        let wait = self.duration("wait", value).unwrap_or_default();
        if wait > WAIT_MAX {
            self.add("wait", "must be at most 300 s: call again where that is not enough");
        }
        wait
    }

    pub fn timestamp(&mut self, field: &str, value: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
        let value = value?;
        let micros = value
            .seconds
            .checked_mul(1_000_000)
            .filter(|_| (0..1_000_000_000).contains(&value.nanos))
            .and_then(|micros| micros.checked_add(i64::from(value.nanos / 1000)));
        // Years 1 to 9999, as protobuf says.
        match micros.filter(|m| (-62_135_596_800_000_000..253_402_300_800_000_000).contains(m)) {
            Some(micros) => Some(Timestamp(micros)),
            None => {
                self.add(field, "must be a time between the years 1 and 9999");
                None
            }
        }
    }

    pub fn labels(&mut self, field: &str, labels: &HashMap<String, String>) -> BTreeMap<String, String> {
        if labels.len() > limits::LABELS_MAX {
            self.add(field, format!("has {} labels, at most {} are taken", labels.len(), limits::LABELS_MAX));
        }
        let mut faults: Vec<String> = labels
            .iter()
            .flat_map(|(name, value)| {
                let value = limits::optional_text(value, 255).err().map(|fault| format!("a value {fault}"));
                limits::label_name(name).err().into_iter().chain(value)
            })
            .collect();
        faults.sort();
        faults.dedup();
        for fault in faults {
            self.add(field, fault);
        }
        labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    pub fn page_size(&mut self, size: i32) -> u32 {
        match u32::try_from(size) {
            Ok(0) => 50,
            Ok(size) => size.min(1000),
            Err(_) => {
                self.add("page_size", "must not be negative: 0 means 50, more than 1000 means 1000");
                50
            }
        }
    }

    fn token(&mut self, text: String) -> LeaseToken {
        // A token of another shape is no fault of form: it was not granted, and LEASE_LOST says so.
        if text.is_empty() {
            self.add("lease_token", "must be the token of the lease that Claim, Register or Poll granted");
        } else if text.len() > 200 {
            self.add("lease_token", "is too long to be a lease token");
        }
        LeaseToken::from_caller(text)
    }

    fn claim_options(&mut self, options: Option<&proto::ClaimOptions>) -> ClaimOptions {
        let empty = proto::ClaimOptions::default();
        let options = options.unwrap_or(&empty);
        self.note("claim.worker_id", limits::optional_text(&options.worker_id, 200));
        ClaimOptions {
            claim_id: self.uuid("claim.claim_id", &options.claim_id),
            worker_id: options.worker_id.clone(),
            lease_duration: self.lease_duration("claim.lease_duration", options.lease_duration.as_ref()),
            two_step: options.two_step,
            poll_id: None,
        }
    }

    fn hash(&mut self, field: &str, text: &str) -> [u8; 32] {
        let hash = parse_hash(text);
        if hash.is_none() {
            self.add(
                field,
                "must be 64 lower-case hexadecimal characters (SHA-256 of the canonical request)",
            );
        }
        hash.unwrap_or_default()
    }

    fn success(&mut self, prefix: &str, success: proto::Success) -> Outcome {
        self.optional(&format!("{prefix}.external_id"), success.external_id.as_ref(), 200);
        self.json(&format!("{prefix}.result_json"), success.result_json.as_ref());
        Outcome::Succeeded { external_id: success.external_id, result_json: success.result_json }
    }

    fn failure(&mut self, prefix: &str, failure: proto::Failure) -> Outcome {
        self.text(&format!("{prefix}.error_code"), &failure.error_code, 100);
        self.error_message(&format!("{prefix}.error_message"), failure.error_message.as_ref());
        Outcome::Failed { error_code: failure.error_code, error_message: failure.error_message }
    }

    fn error_message(&mut self, field: &str, text: Option<&String>) {
        if let Some(text) = text {
            self.note(field, limits::error_message(text));
        }
    }

    fn evidence(&mut self, evidence: proto::Evidence) -> Evidence {
        self.note("evidence.source", limits::optional_text(&evidence.source, 1000));
        self.json("evidence.detail_json", evidence.detail_json.as_ref());
        if evidence.detail_json.as_ref().is_some_and(|text| text.len() > EVIDENCE_DETAIL_MAX) {
            self.add("evidence.detail_json", "is too long: at most 16 KiB");
        }
        let observed_at = self.timestamp("evidence.observe_time", evidence.observe_time.as_ref());
        Evidence { source: evidence.source, detail_json: evidence.detail_json, observed_at }
    }
}

fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let bytes: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

/// What Register takes, but for the fresh ids. `payload_json` stays in the request for comparison.
pub(super) fn register(faults: &mut Faults, request: &proto::RegisterRequest, policy: &Policy) -> Register {
    use proto::register_request::Request;
    faults.action_type("action_type", &request.action_type);
    let mut payload_json = None;
    let request_hash = match &request.request {
        Some(Request::PayloadJson(text)) => {
            payload_json = request.store_payload.then(|| text.clone());
            payload_hash(faults, text, policy)
        }
        Some(Request::RequestHash(text)) => {
            if request.store_payload {
                faults
                    .add("store_payload", "needs payload_json: a hash cannot be turned back into a payload");
            }
            faults.hash("request_hash", text)
        }
        None => {
            faults
                .add("payload_json", "is missing: send payload_json, or request_hash made by the same rule");
            [0; 32]
        }
    };
    faults.parent(request.parent_operation_key.as_ref());
    let claim = request.claim.as_ref().map(|claim| faults.claim_options(Some(claim)));
    Register {
        operation_id: Uuid::now_v7(),
        lease_secret: *Uuid::new_v4().as_bytes(),
        action_type: Arc::from(request.action_type.as_str()),
        request_hash,
        hash_scheme: Arc::from(fingerprint::SCHEME),
        labels: faults.labels("labels", &request.labels),
        parent_operation_key: request.parent_operation_key.clone(),
        payload_json,
        claim,
    }
}

fn payload_hash(faults: &mut Faults, text: &str, policy: &Policy) -> [u8; 32] {
    let max = policy.payload_max_bytes;
    if text.len() > max {
        let description = format!(
            "has {} bytes, the policy of this action type takes {max} (payload.max_bytes): send request_hash \
             instead",
            text.len()
        );
        faults.add("payload_json", description);
        return [0; 32];
    }
    let rules = fingerprint::Rules { reject_fractions: policy.reject_fractions, ..Default::default() };
    match fingerprint::request_hash(text, rules) {
        Ok(hash) => hash,
        Err(fault) => {
            faults.add("payload_json", fault.to_string());
            [0; 32]
        }
    }
}

pub(super) fn claim(faults: &mut Faults, request: &proto::ClaimRequest) -> Claim {
    if request.claim.is_none() {
        faults.add("claim", "is missing: it carries claim_id, a UUID made by the caller before the call");
    }
    let hash = request.expected_request_hash.as_ref();
    let options = match &request.claim {
        Some(options) => faults.claim_options(Some(options)),
        None => ClaimOptions {
            claim_id: Uuid::nil(),
            worker_id: String::new(),
            lease_duration: None,
            two_step: false,
            poll_id: None,
        },
    };
    Claim { options, expected_request_hash: hash.map(|text| faults.hash("expected_request_hash", text)) }
}

pub(super) fn extend(
    faults: &mut Faults,
    lease_token: String,
    lease_duration: Option<&prost_types::Duration>,
) -> Extend {
    Extend {
        token: faults.token(lease_token),
        lease_duration: faults.lease_duration("lease_duration", lease_duration),
    }
}

pub(super) fn complete(faults: &mut Faults, request: proto::CompleteRequest) -> Option<Complete> {
    use proto::complete_request::Outcome as Reported;
    let token = faults.token(request.lease_token);
    let outcome = match request.outcome {
        Some(Reported::Succeeded(success)) => faults.success("succeeded", success),
        Some(Reported::FailedFinal(failure)) => faults.failure("failed_final", failure),
        None => {
            faults.add(
                "outcome",
                "is missing: send succeeded or failed_final (MarkUnknown where neither is known)",
            );
            return None;
        }
    };
    Some(Complete { token, outcome })
}

pub(super) fn mark_unknown(faults: &mut Faults, request: proto::MarkUnknownRequest) -> MarkUnknown {
    faults.text("error_code", &request.error_code, 100);
    faults.error_message("error_message", request.error_message.as_ref());
    faults.optional("external_id", request.external_id.as_ref(), 200);
    MarkUnknown {
        token: faults.token(request.lease_token),
        error_code: request.error_code,
        error_message: request.error_message,
        external_id: request.external_id,
    }
}

pub(super) fn reconcile(faults: &mut Faults, request: proto::ReconcileRequest) -> Option<Reconcile> {
    use proto::reconcile_request::Observation as Observed;
    let evidence = request.evidence.map(|evidence| faults.evidence(evidence));
    if request.operator_decision && evidence.as_ref().is_none_or(|e| e.source.trim().is_empty()) {
        faults.add("evidence.source", "is missing: an operator's decision needs its reason");
    }
    if request.if_version.is_some_and(|version| version < 1) {
        faults.add("if_version", "must be a version that a read answered, 1 or more");
    }
    let token = request.lease_token.map(|text| faults.token(text));
    let observation = match request.observation {
        Some(Observed::Succeeded(success)) => Observation::Known(faults.success("succeeded", success)),
        Some(Observed::Failed(failure)) => Observation::Known(faults.failure("failed", failure)),
        Some(Observed::Absent(_)) => Observation::Absent,
        Some(Observed::Indeterminate(value)) => Observation::Indeterminate {
            check_after: faults.duration("indeterminate.check_after", value.check_after.as_ref()),
        },
        None => {
            faults.add("observation", "is missing: send succeeded, failed, absent or indeterminate");
            return None;
        }
    };
    Some(Reconcile {
        token,
        observation,
        evidence,
        operator_decision: request.operator_decision,
        if_version: request.if_version,
    })
}

/// Operations and action types in one poll, at most.
const POLL_MAX: usize = 100;

pub(super) fn poll(faults: &mut Faults, request: proto::PollRequest, actor: &str) -> Option<Poll> {
    let namespace = faults.namespace(&request.namespace).to_owned();
    let kind = match proto::Purpose::try_from(request.purpose) {
        Ok(proto::Purpose::Execute) => Some(DueKind::Deliver),
        Ok(proto::Purpose::Reconcile) => Some(DueKind::Check),
        _ => {
            faults.add("purpose", "is missing: send PURPOSE_EXECUTE or PURPOSE_RECONCILE");
            None
        }
    };
    if request.action_types.len() > POLL_MAX {
        faults.add("action_types", format!("has more than {POLL_MAX}"));
    }
    for action_type in &request.action_types {
        faults.action_type("action_types", action_type);
    }
    let max = match usize::try_from(request.max_operations) {
        Ok(max) => max.clamp(1, POLL_MAX),
        Err(_) => {
            faults.add("max_operations", "must not be negative: 0 means 1, more than 100 means 100");
            1
        }
    };
    faults.note("worker_id", limits::optional_text(&request.worker_id, 200));
    let mut action_types = request.action_types;
    action_types.sort_unstable();
    action_types.dedup();
    Some(Poll {
        poll_id: faults.uuid("poll_id", &request.poll_id),
        lease_duration: faults.lease_duration("lease_duration", request.lease_duration.as_ref()),
        query: PollQuery { namespace, kind: kind?, action_types },
        max,
        worker_id: request.worker_id,
        actor: actor.into(),
    })
}

pub(super) fn watch(faults: &mut Faults, request: proto::WatchRequest) -> Watch {
    if request.after_sequence < 0 {
        faults.add("after_sequence", "must not be negative: 0 means from the beginning");
    }
    if request.action_types.len() > POLL_MAX {
        faults.add("action_types", format!("has more than {POLL_MAX}"));
    }
    for action_type in &request.action_types {
        faults.action_type("action_types", action_type);
    }
    let key = request.operation_key.as_ref().map(|text| faults.key(&request.namespace, text));
    let namespace = match key {
        Some(key) => key.namespace.to_string(),
        None => faults.namespace(&request.namespace).to_owned(),
    };
    Watch {
        namespace,
        operation_key: request.operation_key,
        after: request.after_sequence,
        action_types: request.action_types,
    }
}
