//! A server that answers as the ledger does and keeps nothing: what unary gRPC alone can do on a
//! machine. `benches/compare` measures it with the same client and messages as the service.
//!
//!     cargo run --release --example echo -- 127.0.0.1:50060

use opledger::proto::{self, ledger_server::LedgerServer};
use proto::{NextStep, Operation, OperationStatus, ledger_server::Ledger};
use std::{error::Error, net::SocketAddr};
use tokio_stream::Pending;
use tonic::{Request, Response, Status, transport::Server};

type Answer<T> = Result<Response<T>, Status>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:50060").parse()?;
    let (health, service) = tonic_health::server::health_reporter();
    health.set_serving::<LedgerServer<Echo>>().await;
    Server::builder()
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 20)
        .http2_adaptive_window(Some(true))
        .add_service(LedgerServer::new(Echo))
        .add_service(service)
        .serve(address)
        .await?;
    Ok(())
}

struct Echo;

const TIME: prost_types::Timestamp = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 123_456_000 };

/// An operation as large as the ledger's.
fn operation(namespace: String, operation_key: String, status: OperationStatus) -> Option<Operation> {
    Some(Operation {
        namespace,
        operation_key,
        operation_id: "0196f0c4-7f6e-7c3a-9d43-2f6d1e0a5b11".into(),
        action_type: "bench".into(),
        request_hash: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef".into(),
        hash_scheme: "jcs-sha256/1".into(),
        status: status.into(),
        version: 1,
        create_time: Some(TIME),
        update_time: Some(TIME),
        ..Operation::default()
    })
}

fn lease() -> Option<proto::Lease> {
    Some(proto::Lease {
        token: "a1.0123456789abcdef0123456789abcdef".into(),
        attempt: 1,
        expire_time: Some(TIME),
        duration: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
    })
}

macro_rules! nothing {
    ($($name:ident $request:ident $response:ident,)*) => {
        #[tonic::async_trait]
        impl Ledger for Echo {
            async fn register(&self, request: Request<proto::RegisterRequest>) -> Answer<proto::RegisterResponse> {
                let request = request.into_inner();
                let claimed = request.claim.is_some();
                let (status, next_step) = if claimed {
                    (OperationStatus::InProgress, NextStep::Execute)
                } else {
                    (OperationStatus::Pending, NextStep::Claim)
                };
                Ok(Response::new(proto::RegisterResponse {
                    operation: operation(request.namespace, request.operation_key, status),
                    created: true,
                    next_step: next_step.into(),
                    lease: claimed.then(lease).flatten(),
                    retry_after: None,
                }))
            }

            async fn claim(&self, request: Request<proto::ClaimRequest>) -> Answer<proto::ClaimResponse> {
                let request = request.into_inner();
                Ok(Response::new(proto::ClaimResponse {
                    granted: true,
                    operation: operation(request.namespace, request.operation_key, OperationStatus::InProgress),
                    next_step: NextStep::Execute.into(),
                    lease: lease(),
                    retry_after: None,
                }))
            }

            async fn complete(&self, request: Request<proto::CompleteRequest>) -> Answer<proto::CompleteResponse> {
                let request = request.into_inner();
                let mut operation = operation(request.namespace, request.operation_key, OperationStatus::Succeeded);
                if let (Some(operation), Some(proto::complete_request::Outcome::Succeeded(success))) =
                    (&mut operation, request.outcome)
                {
                    operation.external_id = success.external_id;
                    operation.result_json = success.result_json;
                }
                Ok(Response::new(proto::CompleteResponse {
                    operation,
                    replayed: false,
                    next_step: NextStep::UseResult.into(),
                }))
            }

            type WatchStream = Pending<Result<proto::WatchResponse, Status>>;

            async fn watch(&self, _: Request<proto::WatchRequest>) -> Answer<Self::WatchStream> {
                Err(Status::unimplemented("an echo has no journal"))
            }

            $(async fn $name(&self, _: Request<proto::$request>) -> Answer<proto::$response> {
                Err(Status::unimplemented("an echo keeps nothing"))
            })*
        }
    };
}

nothing! {
    dispatch DispatchRequest DispatchResponse,
    renew RenewRequest RenewResponse,
    mark_unknown MarkUnknownRequest MarkUnknownResponse,
    reconcile ReconcileRequest ReconcileResponse,
    get GetRequest GetResponse,
    list ListRequest ListResponse,
    list_events ListEventsRequest ListEventsResponse,
    poll PollRequest PollResponse,
}
