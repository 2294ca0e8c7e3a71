//! Engines on one database, and short words for what callers do with them.

use opledger::{
    engine::{Engine, Error, Settings},
    ledger::{
        Action, ClaimOptions, Command, Key, LeaseToken, Outcome, Reply,
        command::{Claim, Complete, Extend, MarkUnknown, Register},
    },
    policy_file::{self, Policies},
    store::Store,
    telemetry::Metrics,
};
use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

/// Longer than anything here takes, also on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// One replica.
pub fn engine(store: Arc<dyn Store>) -> Engine {
    engine_with(store, Settings::default())
}

/// One replica.
pub fn engine_with(store: Arc<dyn Store>, settings: Settings) -> Engine {
    let policies = policy_file::parse("tool_policy: {}").expect("a policy").0;
    Engine::start(store, Policies::of(policies), settings, Metrics::new())
}

/// Waits until something holds.
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let end = Instant::now() + LONG;
    while !holds().await {
        assert!(Instant::now() < end, "waited {LONG:?} for {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// What must not take long.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.unwrap_or_else(|_| panic!("waited {LONG:?} for {what}"))
}

pub fn key(name: &str) -> Key {
    Key::new("default", name)
}

pub async fn act(engine: &Engine, key: &Key, action: Action) -> Result<Reply, Error> {
    engine.execute(Command { key: key.clone(), actor: "test".into(), action }).await
}

fn options() -> ClaimOptions {
    ClaimOptions {
        claim_id: Uuid::new_v4(),
        worker_id: String::new(),
        lease_duration: Some(Duration::from_secs(300)),
        two_step: false,
        poll_id: None,
    }
}

/// A registration; other `request`s under one key conflict.
pub fn register(action_type: &str, request: u8, claims: bool) -> Action {
    Action::Register(Box::new(Register {
        operation_id: Uuid::now_v7(),
        lease_secret: *Uuid::new_v4().as_bytes(),
        action_type: action_type.into(),
        request_hash: [request; 32],
        hash_scheme: "jcs-sha256/1".into(),
        labels: BTreeMap::new(),
        parent_operation_key: None,
        payload_json: None,
        claim: claims.then(options),
    }))
}

pub fn claim() -> Action {
    Action::Claim(Claim { options: options(), expected_request_hash: None })
}

pub fn renew(token: LeaseToken) -> Action {
    Action::Renew(Extend { token, lease_duration: None })
}

pub fn succeed(token: LeaseToken) -> Action {
    let outcome = Outcome::Succeeded { external_id: Some("e1".into()), result_json: None };
    Action::Complete(Complete { token, outcome })
}

pub fn lose(token: LeaseToken) -> Action {
    let error_code = "timeout".into();
    Action::MarkUnknown(MarkUnknown { token, error_code, error_message: None, external_id: None })
}

/// Registers and claims; gives back the lease's token.
pub async fn begin(engine: &Engine, key: &Key) -> LeaseToken {
    let reply = act(engine, key, register("pay", 1, true)).await.unwrap();
    reply.lease.expect("a lease").token
}
