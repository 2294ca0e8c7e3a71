//! One short method per RPC: check, execute, convert.

use super::{
    calls::Deadline,
    convert, page_token, status,
    validate::{self, Faults},
    watch::WatchStream,
};
use crate::{
    engine::{self, Engine},
    ledger::{Action, Command, Key, Operation, Policy, Reply, Timestamp},
    proto::{self, ledger_server::Ledger},
    store::ListQuery,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use uuid::Uuid;

type Answer<T> = Result<Response<T>, Status>;

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct LedgerService {
    engine: Engine,
}

/// The actor of changes while no caller is known by name.
const ANONYMOUS: &str = "anonymous";

impl LedgerService {
    /// A service on this engine.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }

    async fn execute(&self, key: Key, action: Action) -> Result<Reply, Status> {
        let command = Command { key: key.clone(), actor: ANONYMOUS.into(), action };
        self.engine.execute(command).await.map_err(|error| status::from_engine(error, &key, None))
    }
}

/// Answers with all faults of a request, if there are any.
fn reject(faults: Faults) -> Result<(), Status> {
    if faults.0.is_empty() { Ok(()) } else { Err(status::invalid(faults)) }
}

/// How long before the caller's own deadline a waiting call answers with what there is; a tenth of a short one.
const ANSWER_BEFORE: Duration = Duration::from_millis(200);

/// When a call that may wait so long has to answer: not later than its caller listens.
fn wait_until<T>(request: &Request<T>, wait: Duration) -> Instant {
    let now = Instant::now();
    match request.extensions().get::<Deadline>() {
        Some(Deadline(deadline)) => {
            let left = deadline.saturating_duration_since(now);
            now + wait.min(left - (left / 10).min(ANSWER_BEFORE))
        }
        None => now + wait,
    }
}

fn retry_after(reply: &Reply) -> Option<prost_types::Duration> {
    reply.retry_after.map(convert::duration)
}

#[tonic::async_trait]
impl Ledger for LedgerService {
    async fn register(&self, request: Request<proto::RegisterRequest>) -> Answer<proto::RegisterResponse> {
        use proto::register_request::Request as Sent;
        let request = request.into_inner();
        let mut faults = Faults::default();
        let key = faults.key(&request.namespace, &request.operation_key);
        let policy: Arc<Policy> = self.engine.policy(&request.action_type);
        let register = validate::register(&mut faults, &request, &policy);
        reject(faults)?;
        let action = Action::Register(Box::new(register));
        let command = Command { key: key.clone(), actor: ANONYMOUS.into(), action };
        let reply = self.engine.execute(command).await.map_err(|error| {
            let sent = match &request.request {
                Some(Sent::PayloadJson(text)) => Some(text.as_str()),
                _ => None,
            };
            status::from_engine(error, &key, sent)
        })?;
        Ok(Response::new(proto::RegisterResponse {
            created: reply.created,
            next_step: convert::next_step(reply.next_step),
            retry_after: retry_after(&reply),
            lease: reply.lease.map(convert::lease),
            operation: Some(convert::operation(reply.operation)),
        }))
    }

    async fn claim(&self, request: Request<proto::ClaimRequest>) -> Answer<proto::ClaimResponse> {
        let mut faults = Faults::default();
        let wait = faults.wait(request.get_ref().wait.as_ref());
        let deadline = wait_until(&request, wait);
        let request = request.into_inner();
        let key = faults.key(&request.namespace, &request.operation_key);
        let claim = validate::claim(&mut faults, &request);
        reject(faults)?;
        let reply = loop {
            let reply = self.execute(key.clone(), Action::Claim(claim.clone())).await?;
            if !engine::is_worth_waiting(&reply) || Instant::now() >= deadline {
                break reply;
            }
            let reply = self
                .engine
                .observe_until(&key, deadline, |reply| !engine::is_worth_waiting(reply))
                .await
                .map_err(|error| status::from_engine(error, &key, None))?;
            if engine::is_worth_waiting(&reply) {
                break reply;
            }
        };
        Ok(Response::new(proto::ClaimResponse {
            granted: reply.lease.is_some(),
            next_step: convert::next_step(reply.next_step),
            retry_after: retry_after(&reply),
            lease: reply.lease.map(convert::lease),
            operation: Some(convert::operation(reply.operation)),
        }))
    }

    async fn dispatch(&self, request: Request<proto::DispatchRequest>) -> Answer<proto::DispatchResponse> {
        let request = request.into_inner();
        let mut faults = Faults::default();
        let key = faults.key(&request.namespace, &request.operation_key);
        let extend = validate::extend(&mut faults, request.lease_token, request.lease_duration.as_ref());
        reject(faults)?;
        let reply = self.execute(key, Action::Dispatch(extend)).await?;
        Ok(Response::new(proto::DispatchResponse { lease: reply.lease.map(convert::lease) }))
    }

    async fn renew(&self, request: Request<proto::RenewRequest>) -> Answer<proto::RenewResponse> {
        let request = request.into_inner();
        let mut faults = Faults::default();
        let key = faults.key(&request.namespace, &request.operation_key);
        let extend = validate::extend(&mut faults, request.lease_token, request.lease_duration.as_ref());
        reject(faults)?;
        let reply = self.execute(key, Action::Renew(extend)).await?;
        Ok(Response::new(proto::RenewResponse { lease: reply.lease.map(convert::lease) }))
    }

    async fn complete(&self, request: Request<proto::CompleteRequest>) -> Answer<proto::CompleteResponse> {
        let request = request.into_inner();
        let mut faults = Faults::default();
        let key = faults.key(&request.namespace, &request.operation_key);
        let complete = validate::complete(&mut faults, request);
        reject(faults)?;
        let complete = complete.ok_or_else(|| Status::internal("an unchecked request"))?;
        let reply = self.execute(key, Action::Complete(complete)).await?;
        Ok(Response::new(proto::CompleteResponse {
            replayed: reply.replayed,
            next_step: convert::next_step(reply.next_step),
            operation: Some(convert::operation(reply.operation)),
        }))
    }

    async fn mark_unknown(
        &self,
        request: Request<proto::MarkUnknownRequest>,
    ) -> Answer<proto::MarkUnknownResponse> {
        let request = request.into_inner();
        let mut faults = Faults::default();
        let key = faults.key(&request.namespace, &request.operation_key);
        let mark = validate::mark_unknown(&mut faults, request);
        reject(faults)?;
        let reply = self.execute(key, Action::MarkUnknown(mark)).await?;
        Ok(Response::new(proto::MarkUnknownResponse {
            replayed: reply.replayed,
            next_step: convert::next_step(reply.next_step),
            operation: Some(convert::operation(reply.operation)),
        }))
    }

    async fn reconcile(&self, request: Request<proto::ReconcileRequest>) -> Answer<proto::ReconcileResponse> {
        let request = request.into_inner();
        let mut faults = Faults::default();
        let key = faults.key(&request.namespace, &request.operation_key);
        let reconcile = validate::reconcile(&mut faults, request);
        reject(faults)?;
        let reconcile = reconcile.ok_or_else(|| Status::internal("an unchecked request"))?;
        let reply = self.execute(key, Action::Reconcile(Box::new(reconcile))).await?;
        Ok(Response::new(proto::ReconcileResponse {
            replayed: reply.replayed,
            applied: reply.applied,
            next_step: convert::next_step(reply.next_step),
            operation: Some(convert::operation(reply.operation)),
        }))
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Answer<proto::GetResponse> {
        use proto::get_request::Id;
        let mut faults = Faults::default();
        let wait = faults.wait(request.get_ref().wait.as_ref());
        let deadline = wait_until(&request, wait);
        let request = request.into_inner();
        let key = match request.id {
            Some(Id::OperationKey(operation_key)) => {
                let key = faults.key(&request.namespace, &operation_key);
                reject(faults)?;
                key
            }
            Some(Id::OperationId(text)) => {
                let namespace = faults.namespace(&request.namespace);
                let id = faults.uuid("operation_id", &text);
                reject(faults)?;
                let found = self.engine.find(namespace, id).await;
                let key =
                    found.map_err(|error| status::from_engine(error, &Key::new(namespace, ""), None))?;
                key.ok_or_else(|| status::id_not_found(namespace, &text))?
            }
            None => {
                faults.add("operation_key", "is missing: send operation_key or operation_id");
                return Err(status::invalid(faults));
            }
        };
        let is_finished = |reply: &Reply| reply.operation.state.status.is_terminal();
        let reply = self.engine.observe_until(&key, deadline, is_finished).await;
        let reply = reply.map_err(|error| status::from_engine(error, &key, None))?;
        Ok(Response::new(proto::GetResponse {
            next_step: convert::next_step(reply.next_step),
            retry_after: retry_after(&reply),
            operation: Some(convert::operation(reply.operation)),
        }))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Answer<proto::ListResponse> {
        let request = request.into_inner();
        let mut faults = Faults::default();
        let mut query = list_query(&mut faults, &request);
        let filter = format!("{query:?}");
        if !request.page_token.is_empty() {
            match page_token::decode::<16>(&request.page_token, &filter) {
                Ok(bytes) => query.below = Some(Uuid::from_bytes(bytes)),
                Err(fault) => faults.add("page_token", fault),
            }
        }
        let page_size = faults.page_size(request.page_size);
        reject(faults)?;
        // One more than asked for tells whether there is another page.
        query.limit = page_size + 1;
        let key = Key::new(&query.namespace, "");
        let found = self.engine.list(&query).await;
        let mut found = found.map_err(|error| status::from_engine(error, &key, None))?;
        let mut next_page_token = String::new();
        let fitting = fitting(&found).min(page_size as usize);
        if found.len() > fitting {
            found.truncate(fitting);
            if let Some(last) = found.last() {
                next_page_token = page_token::encode(last.identity.operation_id.as_bytes(), &filter);
            }
        }
        let operations = found.into_iter().map(convert::operation).collect();
        Ok(Response::new(proto::ListResponse { operations, next_page_token }))
    }

    async fn list_events(
        &self,
        request: Request<proto::ListEventsRequest>,
    ) -> Answer<proto::ListEventsResponse> {
        let request = request.into_inner();
        let mut faults = Faults::default();
        let key = faults.key(&request.namespace, &request.operation_key);
        let filter = format!("events {} {}", key.namespace, key.operation_key);
        let page_size = faults.page_size(request.page_size);
        let mut after = 0;
        if !request.page_token.is_empty() {
            match page_token::decode::<8>(&request.page_token, &filter) {
                Ok(bytes) => after = i64::from_be_bytes(bytes),
                Err(fault) => faults.add("page_token", fault),
            }
        }
        reject(faults)?;
        let found = self.engine.events(&key, after, page_size + 1).await;
        let found = found.map_err(|error| status::from_engine(error, &key, None))?;
        let mut found = found.ok_or_else(|| status::not_found(&key))?;
        let mut next_page_token = String::new();
        if found.len() > page_size as usize {
            found.truncate(page_size as usize);
            if let Some(last) = found.last() {
                next_page_token = page_token::encode(&last.sequence.to_be_bytes(), &filter);
            }
        }
        let events = found.into_iter().map(convert::event).collect();
        Ok(Response::new(proto::ListEventsResponse { events, next_page_token }))
    }

    async fn poll(&self, request: Request<proto::PollRequest>) -> Answer<proto::PollResponse> {
        let mut faults = Faults::default();
        let wait = faults.wait(request.get_ref().wait.as_ref());
        let deadline = wait_until(&request, wait);
        let poll = validate::poll(&mut faults, request.into_inner(), ANONYMOUS);
        reject(faults)?;
        let poll = poll.ok_or_else(|| Status::internal("an unchecked request"))?;
        let taken = self.engine.poll(&poll, deadline).await;
        let key = Key::new(&poll.query.namespace, "");
        let taken = taken.map_err(|error| status::from_engine(error, &key, None))?;
        let items = taken.into_iter().map(|reply| proto::poll_response::Item {
            next_step: convert::next_step(reply.next_step),
            lease: reply.lease.map(convert::lease),
            operation: Some(convert::operation(reply.operation)),
        });
        Ok(Response::new(proto::PollResponse { items: items.collect() }))
    }

    type WatchStream = WatchStream;

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Answer<Self::WatchStream> {
        let mut faults = Faults::default();
        let watch = validate::watch(&mut faults, request.into_inner());
        reject(faults)?;
        let key = Key::new(&watch.namespace, watch.operation_key.as_deref().unwrap_or_default());
        let watching = self.engine.watch(watch).await;
        let watching = watching.map_err(|error| match error {
            engine::Error::Overloaded => status::overloaded("too many watch already", HashMap::new()),
            error => status::from_engine(error, &key, None),
        })?;
        Ok(Response::new(WatchStream::new(watching, key)))
    }
}

/// A page stays well below the 4 MiB that a gRPC client takes by default.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How many of these operations one page may hold; at least one.
fn fitting(found: &[Operation]) -> usize {
    let bytes = |operation: &Operation| {
        let payload = operation.identity.payload_json.as_ref().map_or(0, String::len);
        let result = operation.state.result_json.as_ref().map_or(0, String::len);
        // The rest of a record: keys, labels, messages at their longest are a few KiB.
        payload + result + 1024
    };
    let mut total = 0;
    let fits = found.iter().take_while(|operation| {
        total += bytes(operation);
        total <= PAGE_BYTES_MAX
    });
    fits.count().max(1)
}

fn list_query(faults: &mut Faults, request: &proto::ListRequest) -> ListQuery {
    let mut statuses = Vec::new();
    for value in &request.statuses {
        match convert::status_from(*value) {
            Some(status) => statuses.push(status),
            None => faults.add("statuses", "has a value that is no status: leave it empty for all"),
        }
    }
    for action_type in &request.action_types {
        faults.action_type("action_types", action_type);
    }
    faults.parent(request.parent_operation_key.as_ref());
    let bound = |faults: &mut Faults,
                 field: &str,
                 value: Option<&prost_types::Timestamp>|
     -> Option<Timestamp> { faults.timestamp(field, value) };
    ListQuery {
        namespace: faults.namespace(&request.namespace).to_owned(),
        statuses,
        action_types: request.action_types.clone(),
        review_required: request.review_required,
        labels: faults.labels("labels", &request.labels),
        updated_before: bound(faults, "updated_before", request.updated_before.as_ref()),
        updated_after: bound(faults, "updated_after", request.updated_after.as_ref()),
        parent_operation_key: request.parent_operation_key.clone(),
        below: None,
        limit: 0,
    }
}
