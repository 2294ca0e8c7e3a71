//! Which calls make one cycle, and what they send.

use crate::proto::{
    ClaimOptions, ClaimRequest, CompleteRequest, GetRequest, RegisterRequest, Success,
    complete_request::Outcome, get_request::Id, register_request::Request,
};
use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// See the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mix {
    Lifecycle,
    Short,
    Register,
    ClaimComplete,
    Replay,
    Get,
}

/// One call of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Register,
    RegisterClaimed,
    Claim,
    Complete,
    Replay,
    Get,
}

impl Mix {
    pub fn name(self) -> String {
        use clap::ValueEnum;
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The calls on one operation, in order.
    pub fn steps(self) -> &'static [Step] {
        match self {
            Mix::Lifecycle => &[Step::Register, Step::Claim, Step::Complete],
            Mix::Short => &[Step::RegisterClaimed, Step::Complete],
            Mix::Register => &[Step::Register],
            Mix::ClaimComplete => &[Step::Claim, Step::Complete],
            Mix::Replay => &[Step::Replay],
            Mix::Get => &[Step::Get],
        }
    }

    /// The calls that make what the others work on, before anything is measured.
    pub fn before(self) -> &'static [Step] {
        match self {
            Mix::Lifecycle | Mix::Short | Mix::Register => &[],
            Mix::ClaimComplete => &[Step::Register],
            Mix::Replay | Mix::Get => &[Step::RegisterClaimed, Step::Complete],
        }
    }

    /// True where the same few operations serve again and again.
    pub fn goes_round(self) -> bool {
        matches!(self, Mix::Replay | Mix::Get)
    }
}

impl Step {
    pub const ALL: [Step; 6] =
        [Step::Register, Step::RegisterClaimed, Step::Claim, Step::Complete, Step::Replay, Step::Get];

    pub const fn name(self) -> &'static str {
        match self {
            Step::Register => "register",
            Step::RegisterClaimed => "register_claimed",
            Step::Claim => "claim",
            Step::Complete => "complete",
            Step::Replay => "replay",
            Step::Get => "get",
        }
    }

    /// Durable changes that one such call makes; a call that makes none counts as one.
    pub const fn ops(self) -> u64 {
        match self {
            Step::RegisterClaimed => 2,
            _ => 1,
        }
    }
}

/// Makes the messages. Operations are numbered; those of one run have keys that no other run has, and
/// that grow with time, as most callers' keys do.
pub(super) struct Messages {
    namespace: String,
    prefix: String,
    run: u64,
    payload: String,
    result: String,
}

impl Messages {
    pub fn new(namespace: &str, payload_bytes: u32, result_bytes: u32) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let run = Uuid::new_v4().as_u64_pair().0;
        Self {
            namespace: namespace.to_owned(),
            prefix: format!("bench-{now:011x}{:05x}-", run & 0xf_ffff),
            run,
            payload: json_text(payload_bytes as usize, PAYLOAD),
            result: json_text(result_bytes as usize, RESULT),
        }
    }

    fn key(&self, number: u64) -> String {
        format!("{}{number:08x}", self.prefix)
    }

    /// The claim id of an operation's only attempt.
    fn claim(&self, number: u64) -> ClaimOptions {
        let bytes = Uuid::from_u64_pair(self.run, number).into_bytes();
        ClaimOptions {
            claim_id: uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string(),
            worker_id: "bench".to_owned(),
            lease_duration: None,
            two_step: false,
        }
    }

    pub fn register(&self, number: u64, claim: bool) -> RegisterRequest {
        RegisterRequest {
            namespace: self.namespace.clone(),
            operation_key: self.key(number),
            action_type: "bench".to_owned(),
            request: Some(Request::PayloadJson(self.payload.clone())),
            store_payload: false,
            labels: HashMap::new(),
            parent_operation_key: None,
            claim: claim.then(|| self.claim(number)),
        }
    }

    pub fn claim_request(&self, number: u64) -> ClaimRequest {
        ClaimRequest {
            namespace: self.namespace.clone(),
            operation_key: self.key(number),
            claim: Some(self.claim(number)),
            expected_request_hash: None,
            wait: None,
        }
    }

    pub fn complete(&self, number: u64, lease_token: String) -> CompleteRequest {
        CompleteRequest {
            namespace: self.namespace.clone(),
            operation_key: self.key(number),
            lease_token,
            outcome: Some(Outcome::Succeeded(Success {
                external_id: Some(format!("ext-{number:016x}")),
                result_json: Some(self.result.clone()),
            })),
        }
    }

    pub fn get(&self, number: u64) -> GetRequest {
        GetRequest {
            namespace: self.namespace.clone(),
            id: Some(Id::OperationKey(self.key(number))),
            wait: None,
        }
    }
}

const PAYLOAD: &str =
    r#"{"amount":4990,"currency":"EUR","to":{"name":"A. Example","iban":"DE89370400440532013000"},"note":""#;
const RESULT: &str = r#"{"id":"pay_2f6d1e0a5b11","status":"paid","amount":4990,"note":""#;

/// A JSON text of exactly this many bytes, at least two: an object where it fits, a string otherwise.
fn json_text(bytes: usize, object: &str) -> String {
    let (head, tail) = if bytes >= object.len() + 2 { (object, "\"}") } else { ("\"", "\"") };
    let padding = bytes.saturating_sub(head.len() + tail.len());
    format!("{head}{}{tail}", "x".repeat(padding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_texts_have_the_length_asked_for() {
        for bytes in [2, 3, 50, 120, 230, 256, 10_000] {
            let text = json_text(bytes, PAYLOAD);
            assert_eq!(text.len(), bytes);
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn keys_grow_and_claim_ids_are_valid_and_differ() {
        let messages = Messages::new("bench", 256, 230);
        assert!(messages.key(9) < messages.key(10) && messages.key(0xff) < messages.key(0x100));
        let ids = [0, 1, u64::MAX].map(|number| messages.claim(number).claim_id);
        assert!(ids.iter().all(|id| Uuid::try_parse(id).is_ok_and(|id| !id.is_nil())), "{ids:?}");
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    }
}
