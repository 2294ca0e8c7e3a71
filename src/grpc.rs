//! STUB: to be replaced by the lead's file (keep the `pub mod` lines and the re-export).
#![allow(missing_docs)]
pub mod calls;
pub mod connection;
pub mod health;
pub mod server;

pub use server::{Settings, serve};

use crate::{engine::Engine, proto};
use tonic::{Request, Response, Status};

pub struct LedgerService;

impl LedgerService {
    pub fn new(_engine: Engine) -> Self {
        Self
    }
}

macro_rules! unimplemented_calls {
    ($($name:ident $request:ident $response:ident,)*) => {
        #[tonic::async_trait]
        impl proto::ledger_server::Ledger for LedgerService {
            type WatchStream = tokio_stream::Empty<Result<proto::WatchResponse, Status>>;
            $(async fn $name(&self, _: Request<proto::$request>) -> Result<Response<proto::$response>, Status> {
                Err(Status::unimplemented("stub"))
            })*
            async fn watch(&self, _: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
                Err(Status::unimplemented("stub"))
            }
        }
    };
}
unimplemented_calls! {
    register RegisterRequest RegisterResponse,
    claim ClaimRequest ClaimResponse,
    dispatch DispatchRequest DispatchResponse,
    renew RenewRequest RenewResponse,
    complete CompleteRequest CompleteResponse,
    mark_unknown MarkUnknownRequest MarkUnknownResponse,
    reconcile ReconcileRequest ReconcileResponse,
    get GetRequest GetResponse,
    list ListRequest ListResponse,
    list_events ListEventsRequest ListEventsResponse,
    poll PollRequest PollResponse,
}
