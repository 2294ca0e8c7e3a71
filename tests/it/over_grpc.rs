//! The third way to play a script: through the gRPC service, as any client.

use crate::{play, script::OnStore, script::Target};
use opledger::{
    grpc::{self, LedgerService},
    health::Health,
    ledger::{
        Action, Command, Event, Granted, Key, LeaseToken, NextStep, Observation, Operation, Outcome, Refusal,
        Refused, Reply, Timestamp,
        command::{ClaimOptions, Evidence},
    },
    proto::{self, ledger_client::LedgerClient},
    shutdown::{self, Trigger},
    store::Store,
    telemetry::Metrics,
};
use std::{sync::Arc, time::Duration};
use tonic::{Status, transport::Channel};
use tonic_types::StatusExt;

/// A server in this process, and a client of it.
pub struct OverGrpc {
    pub inner: OnStore,
    client: LedgerClient<Channel>,
    trigger: Trigger,
}

impl OverGrpc {
    pub async fn on(store: Arc<dyn Store>, policy_text: &str) -> Self {
        let inner = play::on(store, policy_text);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (trigger, shutdown) = shutdown::channel();
        let service = LedgerService::new(inner.engine.clone());
        let settings = grpc::Settings { drain_timeout: Duration::from_secs(1), ..Default::default() };
        tokio::spawn(grpc::serve(listener, service, settings, Metrics::new(), Health::new(), shutdown));
        let client = LedgerClient::connect(address).await.unwrap();
        Self { inner, client, trigger }
    }

    pub async fn stop(self) {
        self.trigger.fire();
        self.inner.engine.stop().await;
    }
}

/// What the messages of all answers have in common.
#[derive(Default)]
struct Answer {
    next_step: i32,
    lease: Option<proto::Lease>,
    retry_after: Option<prost_types::Duration>,
    created: bool,
    replayed: bool,
    applied: bool,
}

impl Target for OverGrpc {
    async fn execute(&self, command: Command) -> Result<Reply, Box<Refused>> {
        let key = command.key.clone();
        let stores = matches!(&command.action, Action::Register(request) if request.payload_json.is_some());
        let polls = matches!(&command.action, Action::Claim(request) if request.options.poll_id.is_some())
            || matches!(command.action, Action::ClaimCheck(_));
        if stores || polls {
            return self.inner.execute(command).await;
        }
        let answer = self.call(command).await;
        let operation = self.record(&key).await;
        match answer {
            Ok(answer) => Ok(reply(answer, operation.expect("an accepted command has a record"))),
            Err(status) => Err(Box::new(Refused {
                refusal: refusal(&status, operation.as_ref()),
                operation,
                next_step: None,
            })),
        }
    }

    fn advance(&self, by: Duration) {
        self.inner.advance(by);
    }

    async fn events(&self, key: &Key) -> Vec<Event> {
        self.inner.events(key).await
    }

    async fn record(&self, key: &Key) -> Option<Operation> {
        self.inner.record(key).await
    }

    /// Not every message says whether it is a repeat, or applied.
    fn visible(&self, step: &str, answer: &str) -> String {
        let silent: &[&str] = match step {
            _ if step.starts_with("check")
                || step.starts_with("deliver")
                || step.starts_with("register!") =>
            {
                return answer.to_owned();
            }
            _ if step.starts_with("register") || step.starts_with("saw-") || step.starts_with("op-") => &[],
            _ if step.starts_with("ok") || step.starts_with("fail") || step.starts_with("lost") => {
                &["applied "]
            }
            _ => &["replayed ", "applied "],
        };
        silent.iter().fold(answer.to_owned(), |answer, word| answer.replace(word, ""))
    }
}

impl OverGrpc {
    async fn call(&self, command: Command) -> Result<Answer, Status> {
        let mut client = self.client.clone();
        let namespace = command.key.namespace.to_string();
        let operation_key = command.key.operation_key.to_string();
        match command.action {
            Action::Register(request) => {
                let message = proto::RegisterRequest {
                    namespace,
                    operation_key,
                    action_type: request.action_type.to_string(),
                    request: Some(proto::register_request::Request::RequestHash(hex(&request.request_hash))),
                    claim: request.claim.map(claim_options),
                    ..Default::default()
                };
                let answer = client.register(message).await?.into_inner();
                let (created, replayed) = (answer.created, !answer.created);
                let (next_step, lease, retry_after) = (answer.next_step, answer.lease, answer.retry_after);
                Ok(Answer { next_step, lease, retry_after, created, replayed, ..Answer::default() })
            }
            Action::Claim(request) => {
                let message = proto::ClaimRequest {
                    namespace,
                    operation_key,
                    claim: Some(claim_options(request.options)),
                    expected_request_hash: request.expected_request_hash.map(|hash| hex(&hash)),
                    ..Default::default()
                };
                let answer = client.claim(message).await?.into_inner();
                assert_eq!(answer.granted, answer.lease.is_some());
                let (next_step, lease, retry_after) = (answer.next_step, answer.lease, answer.retry_after);
                Ok(Answer { next_step, lease, retry_after, ..Answer::default() })
            }
            Action::Dispatch(request) => {
                let lease_token = request.token.expose().to_owned();
                let lease_duration = request.lease_duration.map(duration);
                let message =
                    proto::DispatchRequest { namespace, operation_key, lease_token, lease_duration };
                Ok(held(client.dispatch(message).await?.into_inner().lease))
            }
            Action::Renew(request) => {
                let lease_token = request.token.expose().to_owned();
                let lease_duration = request.lease_duration.map(duration);
                let message = proto::RenewRequest { namespace, operation_key, lease_token, lease_duration };
                let lease = client.renew(message).await?.into_inner().lease;
                let checks = lease.as_ref().is_some_and(|lease| lease.token.starts_with('c'));
                let next_step = if checks { proto::NextStep::Reconcile } else { proto::NextStep::Execute };
                Ok(Answer { next_step: next_step.into(), ..held(lease) })
            }
            Action::Complete(request) => {
                use proto::complete_request::Outcome as Sent;
                let message = proto::CompleteRequest {
                    namespace,
                    operation_key,
                    lease_token: request.token.expose().to_owned(),
                    outcome: Some(match outcome(request.outcome) {
                        Ok(success) => Sent::Succeeded(success),
                        Err(failure) => Sent::FailedFinal(failure),
                    }),
                };
                let answer = client.complete(message).await?.into_inner();
                Ok(Answer { next_step: answer.next_step, replayed: answer.replayed, ..Answer::default() })
            }
            Action::MarkUnknown(request) => {
                let message = proto::MarkUnknownRequest {
                    namespace,
                    operation_key,
                    lease_token: request.token.expose().to_owned(),
                    error_code: request.error_code,
                    error_message: request.error_message,
                    external_id: request.external_id,
                };
                let answer = client.mark_unknown(message).await?.into_inner();
                Ok(Answer { next_step: answer.next_step, replayed: answer.replayed, ..Answer::default() })
            }
            Action::Reconcile(request) => {
                use proto::reconcile_request::Observation as Sent;
                let message = proto::ReconcileRequest {
                    namespace,
                    operation_key,
                    lease_token: request.token.map(|token| token.expose().to_owned()),
                    observation: Some(match request.observation {
                        Observation::Known(known) => match outcome(known) {
                            Ok(success) => Sent::Succeeded(success),
                            Err(failure) => Sent::Failed(failure),
                        },
                        Observation::Absent => Sent::Absent(proto::Absent {}),
                        Observation::Indeterminate { check_after } => {
                            Sent::Indeterminate(proto::Indeterminate {
                                check_after: check_after.map(duration),
                            })
                        }
                    }),
                    evidence: request.evidence.map(evidence),
                    operator_decision: request.operator_decision,
                    if_version: request.if_version,
                };
                let answer = client.reconcile(message).await?.into_inner();
                let (next_step, replayed, applied) = (answer.next_step, answer.replayed, answer.applied);
                Ok(Answer { next_step, replayed, applied, ..Answer::default() })
            }
            // Poll takes what is due in a whole namespace: the engine plays these.
            Action::ClaimCheck(_) => unreachable!("played by the engine"),
            Action::Observe => {
                let id = Some(proto::get_request::Id::OperationKey(operation_key));
                let answer = client.get(proto::GetRequest { namespace, id, wait: None }).await?.into_inner();
                let (next_step, retry_after) = (answer.next_step, answer.retry_after);
                Ok(Answer { next_step, retry_after, ..Answer::default() })
            }
        }
    }
}

fn held(lease: Option<proto::Lease>) -> Answer {
    Answer { next_step: proto::NextStep::Execute.into(), lease, ..Answer::default() }
}

fn reply(answer: Answer, operation: Operation) -> Reply {
    let next_step = match proto::NextStep::try_from(answer.next_step).expect("a next step") {
        proto::NextStep::Execute => NextStep::Execute,
        proto::NextStep::Claim => NextStep::Claim,
        proto::NextStep::Wait => NextStep::Wait,
        proto::NextStep::Reconcile => NextStep::Reconcile,
        proto::NextStep::UseResult => NextStep::UseResult,
        proto::NextStep::Stop => NextStep::Stop,
        proto::NextStep::Review => NextStep::Review,
        proto::NextStep::Unspecified => panic!("every answer carries a next step"),
    };
    // These answers carry no duration: the record tells how long there is to wait.
    let retry_after = (next_step == NextStep::Wait).then_some(Duration::ZERO);
    let lease = answer.lease.map(|lease| Granted {
        token: LeaseToken::from_caller(lease.token),
        attempt: lease.attempt,
        until: Timestamp(lease.expire_time.expect("an end").seconds * 1_000_000),
        remaining: lease.duration.expect("a duration").try_into().expect("a positive duration"),
    });
    let (created, replayed, applied) = (answer.created, answer.replayed, answer.applied);
    assert!(answer.retry_after.is_none() || matches!(next_step, NextStep::Wait | NextStep::Reconcile));
    Reply { operation, next_step, lease, retry_after, created, replayed, applied }
}

/// The refusal that an error's reason names; its code must be the reason's.
fn refusal(status: &Status, operation: Option<&Operation>) -> Refusal {
    use tonic::Code;
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(info.domain, "opledger");
    let (code, refusal) = match info.reason.as_str() {
        "OPERATION_NOT_FOUND" => (Code::NotFound, Refusal::NotFound),
        "REQUEST_HASH_MISMATCH" => {
            (Code::AlreadyExists, Refusal::RequestHashMismatch { action_type_differs: false })
        }
        "LEASE_LOST" => (Code::FailedPrecondition, Refusal::LeaseLost),
        "OUTCOME_CONFLICT" => (Code::FailedPrecondition, Refusal::OutcomeConflict),
        "ALREADY_TERMINAL" => (Code::FailedPrecondition, Refusal::AlreadyTerminal),
        "VERSION_MISMATCH" => (Code::Aborted, Refusal::VersionMismatch),
        "INVALID_FIELD" => {
            let fault = &details.bad_request().expect("a faulty field").field_violations[0];
            let field: &'static str = fault.field.clone().leak();
            (Code::InvalidArgument, Refusal::InvalidField { field, description: fault.description.clone() })
        }
        other => panic!("unexpected reason {other}: {status:?}"),
    };
    assert_eq!(status.code(), code);
    if let (Some(operation), Code::FailedPrecondition | Code::Aborted) = (operation, code) {
        assert_eq!(info.metadata["status"], operation.state.status.as_str());
        assert_eq!(info.metadata["currentVersion"], operation.state.version.to_string());
    }
    refusal
}

fn claim_options(options: ClaimOptions) -> proto::ClaimOptions {
    proto::ClaimOptions {
        claim_id: options.claim_id.to_string(),
        worker_id: options.worker_id,
        lease_duration: options.lease_duration.map(duration),
        two_step: options.two_step,
    }
}

fn outcome(outcome: Outcome) -> Result<proto::Success, proto::Failure> {
    match outcome {
        Outcome::Succeeded { external_id, result_json } => Ok(proto::Success { external_id, result_json }),
        Outcome::Failed { error_code, error_message } => Err(proto::Failure { error_code, error_message }),
    }
}

fn evidence(evidence: Evidence) -> proto::Evidence {
    proto::Evidence { source: evidence.source, detail_json: evidence.detail_json, observe_time: None }
}

fn duration(duration: Duration) -> prost_types::Duration {
    duration.try_into().expect("a small duration")
}

fn hex(bytes: &[u8; 32]) -> String {
    opledger::fingerprint::to_hex(bytes)
}
