//! Refusals and failures as gRPC status with `google.rpc` details.

use super::validate::Faults;
use crate::{
    engine::{self, feed::End},
    ledger::{Key, Operation, Refusal, Refused},
    proto::ErrorReason,
    store,
};
use std::{collections::HashMap, time::Duration};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt};

/// The domain of every ErrorInfo.
pub(super) const DOMAIN: &str = "opledger";
/// The text of a reason: its name in the proto file without the prefix.
pub(super) fn reason(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix("ERROR_REASON_").unwrap_or(name)
}

/// Details travel in a header: many faults are cut to so many.
const FAULTS_MAX: usize = 32;
/// JSON pointers named in a conflict, at most; and characters of them all.
const POINTERS_MAX: usize = 10;
const POINTERS_CHARS_MAX: usize = 1024;

/// An error with nothing but its reason.
pub(super) fn with_reason(code: Code, why: ErrorReason, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason(why), DOMAIN, HashMap::new());
    Status::with_error_details(code, message, details)
}

/// All faulty fields of a request.
pub(super) fn invalid(faults: Faults) -> Status {
    let mut violations = faults.0;
    let count = violations.len();
    violations.truncate(FAULTS_MAX);
    let list: Vec<String> = violations.iter().map(|v| format!("{} {}", v.field, v.description)).collect();
    let more = if count > FAULTS_MAX { format!(" (and {} more)", count - FAULTS_MAX) } else { String::new() };
    let mut message = format!("invalid request: {}{more}", list.join("; "));
    if message.len() > 2048 {
        let end = (0..=2048).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    let mut details =
        ErrorDetails::with_error_info(reason(ErrorReason::InvalidField), DOMAIN, HashMap::new());
    details.set_bad_request(violations);
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// No operation with this key.
pub(super) fn not_found(key: &Key) -> Status {
    no_such(&format!("{}/{}", key.namespace, key.operation_key), metadata(key, None, None))
}

/// No operation with this id.
pub(super) fn id_not_found(namespace: &str, id: &str) -> Status {
    let metadata = HashMap::from([
        ("namespace".to_owned(), namespace.to_owned()),
        ("operationId".to_owned(), id.to_owned()),
    ]);
    no_such(&format!("{namespace}/{id}"), metadata)
}

fn no_such(name: &str, metadata: HashMap<String, String>) -> Status {
    let mut details = ErrorDetails::with_error_info(reason(ErrorReason::OperationNotFound), DOMAIN, metadata);
    details.set_resource_info("operation", name, "", "register it first");
    let message = "no such operation: register it first, or check the namespace and the key";
    Status::with_error_details(Code::NotFound, message, details)
}

/// What the engine answered instead of a reply. `sent_payload` is the payload of a registration, for
/// naming the places in which it differs from a stored one.
pub(super) fn from_engine(error: engine::Error, key: &Key, sent_payload: Option<&str>) -> Status {
    match error {
        engine::Error::Refused(refused) => from_refusal(*refused, key, sent_payload),
        engine::Error::Store(error) => from_store(&error),
        engine::Error::Overloaded => overloaded("too many commands are waiting", HashMap::new()),
        engine::Error::Contended => {
            let details =
                ErrorDetails::with_error_info(reason(ErrorReason::Contended), DOMAIN, HashMap::new());
            let message = "others changed the operation each time: nothing was done, call again";
            Status::with_error_details(Code::Aborted, message, details)
        }
        engine::Error::Stopping => {
            unavailable(ErrorReason::ShuttingDown, "the service is going down: nothing was done, call again")
        }
    }
}

/// Too much at once; nothing was done.
pub(super) fn overloaded(what: &str, metadata: HashMap<String, String>) -> Status {
    let mut details = ErrorDetails::with_error_info(reason(ErrorReason::Overloaded), DOMAIN, metadata);
    details.set_retry_info(Some(Duration::from_millis(250)));
    let message = format!("overloaded: {what}; nothing was done, call again after a pause");
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

fn unavailable(why: ErrorReason, message: &str) -> Status {
    let mut details = ErrorDetails::with_error_info(reason(why), DOMAIN, HashMap::new());
    details.set_retry_info(Some(Duration::from_millis(500)));
    Status::with_error_details(Code::Unavailable, message, details)
}

/// The end of a stream that was not finished: to be resumed after this sequence number.
pub(super) fn watch_ended(end: End, key: &Key) -> Option<Status> {
    let (resume, status) = match end {
        End::Finished => return None,
        End::TooSlow(resume) => {
            let details =
                ErrorDetails::with_error_info(reason(ErrorReason::WatchTooSlow), DOMAIN, HashMap::new());
            let message = "what was sent was not taken for too long: watch again after resumeSequence";
            (resume, Status::with_error_details(Code::ResourceExhausted, message, details))
        }
        End::Stopping(resume) => {
            let message = "the service is going down: watch again after resumeSequence, on another replica";
            (resume, unavailable(ErrorReason::ShuttingDown, message))
        }
        End::Failed(resume, error) => (resume, from_engine(error, key, None)),
    };
    let mut details = status.get_error_details();
    if let Some(info) = details.error_info() {
        let (reason, mut metadata) = (info.reason.clone(), info.metadata.clone());
        metadata.insert("resumeSequence".to_owned(), resume.to_string());
        details.set_error_info(reason, DOMAIN, metadata);
    }
    Some(Status::with_error_details(status.code(), status.message(), details))
}

pub(super) fn from_store(error: &store::Error) -> Status {
    if matches!(error, store::Error::Data { .. } | store::Error::Corrupt { .. }) {
        let details =
            ErrorDetails::with_error_info(reason(ErrorReason::StoreRefused), DOMAIN, HashMap::new());
        let message = "the store refused this operation's data; the server's log has the reason";
        return Status::with_error_details(Code::Internal, message, details);
    }
    unavailable(
        ErrorReason::StoreUnavailable,
        "the store cannot be reached, or its answer was lost: repeat the call as it was, that is always safe",
    )
}

fn from_refusal(refused: Refused, key: &Key, sent_payload: Option<&str>) -> Status {
    let name = format!("{}/{}", key.namespace, key.operation_key);
    let operation = refused.operation.as_ref();
    let metadata = metadata(key, operation, refused.next_step.map(|step| format!("{step:?}")));
    match refused.refusal {
        Refusal::NotFound => not_found(key),
        Refusal::RequestHashMismatch { action_type_differs } => {
            mismatch(&name, metadata, action_type_differs, operation, sent_payload)
        }
        Refusal::LeaseLost => precondition(
            ErrorReason::LeaseLost,
            &name,
            metadata,
            "the lease token is not the current one: stop acting, and ask for the next step with Get",
        ),
        Refusal::OutcomeConflict => precondition(
            ErrorReason::OutcomeConflict,
            &name,
            metadata,
            "the report contradicts the recorded outcome: it was kept, and a person must look",
        ),
        Refusal::AlreadyTerminal => precondition(
            ErrorReason::AlreadyTerminal,
            &name,
            metadata,
            "the operation is finished, its outcome stands: read it with Get",
        ),
        Refusal::VersionMismatch => {
            let details =
                ErrorDetails::with_error_info(reason(ErrorReason::VersionMismatch), DOMAIN, metadata);
            let message = "the operation is no longer at if_version: read it again and decide anew";
            Status::with_error_details(Code::Aborted, message, details)
        }
        Refusal::InvalidField { field, description } => {
            invalid(Faults(vec![FieldViolation::new(field, description)]))
        }
    }
}

fn metadata(key: &Key, operation: Option<&Operation>, next_step: Option<String>) -> HashMap<String, String> {
    let mut metadata = HashMap::new();
    metadata.insert("namespace".to_owned(), key.namespace.to_string());
    metadata.insert("operationKey".to_owned(), key.operation_key.to_string());
    if let Some(operation) = operation {
        metadata.insert("status".to_owned(), operation.state.status.to_string());
        metadata.insert("currentVersion".to_owned(), operation.state.version.to_string());
        metadata.insert("reviewRequired".to_owned(), operation.review_required().to_string());
    }
    if let Some(step) = next_step {
        metadata.insert("nextStep".to_owned(), screaming(&step));
    }
    metadata
}

/// `UseResult` as `USE_RESULT`.
fn screaming(name: &str) -> String {
    let mut text = String::new();
    for (at, c) in name.chars().enumerate() {
        if c.is_uppercase() && at > 0 {
            text.push('_');
        }
        text.push(c.to_ascii_uppercase());
    }
    text
}

/// Blanks and control characters as `%20` and the like, as in a URI fragment: pointers are separated by blanks.
fn in_one_word(pointer: &str) -> String {
    let mut word = String::with_capacity(pointer.len());
    for c in pointer.chars() {
        if c.is_control() || c.is_whitespace() || c == '%' {
            let mut bytes = [0; 4];
            word.extend(c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            word.push(c);
        }
    }
    word
}

fn precondition(why: ErrorReason, name: &str, metadata: HashMap<String, String>, message: &str) -> Status {
    let mut details = ErrorDetails::with_error_info(reason(why), DOMAIN, metadata);
    details.set_precondition_failure(vec![PreconditionViolation::new(reason(why), name, message)]);
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

fn mismatch(
    name: &str,
    mut metadata: HashMap<String, String>,
    action_type_differs: bool,
    operation: Option<&Operation>,
    sent_payload: Option<&str>,
) -> Status {
    let differs = if action_type_differs { "action_type" } else { "request" };
    metadata.insert("differs".to_owned(), differs.to_owned());
    let stored = operation.and_then(|operation| operation.identity.payload_json.as_deref());
    if let (Some(stored), Some(sent)) = (stored, sent_payload) {
        let mut pointers = String::new();
        for pointer in crate::fingerprint::differing_pointers(stored, sent, POINTERS_MAX) {
            let pointer = in_one_word(&pointer);
            if pointers.len() + pointer.len() >= POINTERS_CHARS_MAX {
                break;
            }
            if !pointers.is_empty() {
                pointers.push(' ');
            }
            pointers.push_str(if pointer.is_empty() { "(root)" } else { &pointer });
        }
        metadata.insert("differingPointers".to_owned(), pointers);
    }
    let mut details =
        ErrorDetails::with_error_info(reason(ErrorReason::RequestHashMismatch), DOMAIN, metadata);
    let description = "this key belongs to another request";
    details.set_resource_info("operation", name, "", description);
    let message = format!(
        "this operation_key belongs to another request (its {differs} differs): nothing was changed; use a new \
         key for a new intention, or send the same request again"
    );
    Status::with_error_details(Code::AlreadyExists, message, details)
}
