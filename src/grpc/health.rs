//! `grpc.health.v1`, told by [`crate::health`]. Its streams end when the drain begins, so that a
//! load balancer that watches does not hold the drain up.

use crate::health::{Health, Readiness};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server,
};

/// The names that can be asked for: the server as a whole, and the ledger.
const NAMES: [&str; 2] = ["", "opledger.v1.Ledger"];

/// The health service.
pub struct HealthService(Health);

impl HealthService {
    /// Serves this value.
    #[must_use]
    pub fn server(health: Health) -> health_server::HealthServer<Self> {
        health_server::HealthServer::new(Self(health))
    }

    fn known(request: &Request<HealthCheckRequest>) -> Result<(), Status> {
        if NAMES.contains(&request.get_ref().service.as_str()) {
            return Ok(());
        }
        Err(Status::not_found("unknown service: ask for \"\" or \"opledger.v1.Ledger\""))
    }
}

fn response(readiness: &Readiness) -> HealthCheckResponse {
    let status = match readiness {
        Readiness::Ready => ServingStatus::Serving,
        Readiness::StoreAway(_) | Readiness::Draining => ServingStatus::NotServing,
    };
    HealthCheckResponse { status: status as i32 }
}

#[tonic::async_trait]
impl health_server::Health for HealthService {
    type WatchStream = Changes;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Self::known(&request)?;
        Ok(Response::new(response(&self.0.readiness())))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Changes>, Status> {
        Self::known(&request)?;
        Ok(Response::new(Changes::new(self.0.subscribe())))
    }
}

type Next = Pin<Box<dyn Future<Output = (Option<Readiness>, watch::Receiver<Readiness>)> + Send>>;

/// The status now, then each other one; ends after the drain has begun.
pub struct Changes {
    next: Option<Next>,
    last: Option<i32>,
}

impl Changes {
    fn new(mut readiness: watch::Receiver<Readiness>) -> Self {
        readiness.mark_changed();
        Self { next: Some(Box::pin(next(readiness))), last: None }
    }
}

async fn next(mut receiver: watch::Receiver<Readiness>) -> (Option<Readiness>, watch::Receiver<Readiness>) {
    let changed = receiver.changed().await;
    let readiness = changed.ok().map(|()| receiver.borrow_and_update().clone());
    (readiness, receiver)
}

impl Stream for Changes {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(pending) = self.next.as_mut() else {
                return Poll::Ready(None);
            };
            let (readiness, receiver) = ready!(pending.as_mut().poll(context));
            self.next = match &readiness {
                None | Some(Readiness::Draining) => None,
                Some(_) => Some(Box::pin(next(receiver))),
            };
            if let Some(answer) = readiness.as_ref().map(response)
                && self.last != Some(answer.status)
            {
                self.last = Some(answer.status);
                return Poll::Ready(Some(Ok(answer)));
            }
        }
    }
}
