//! Records made by hand: what a store keeps need not be anything that the state machine would write.

use opledger::{
    ledger::{
        CheckLease, Due, Event, EventKind, Identity, Key, Lease, Operation, Reports, State, Status,
        Timestamp, event::Detail,
    },
    store::{DecidedAt, Forgets, Store, Write},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

pub const SECOND: Duration = Duration::from_secs(1);

/// A pending operation with nothing but what it must have.
pub fn pending(namespace: &str, operation_key: &str, at: Timestamp) -> Operation {
    Operation {
        identity: Arc::new(Identity {
            key: Key::new(namespace, operation_key),
            operation_id: Uuid::now_v7(),
            action_type: "create_payment".into(),
            request_hash: [7; 32],
            hash_scheme: "jcs-sha256/1".into(),
            labels: BTreeMap::new(),
            parent_operation_key: None,
            payload_json: None,
            lease_secret: *Uuid::new_v4().as_bytes(),
            created_at: at,
        }),
        state: State { version: 1, ..State::unborn(at) },
    }
}

/// An operation with every field set, each to another value.
pub fn full(namespace: &str, operation_key: &str, status: Status) -> Operation {
    let at = |micros: i64| Timestamp(1_700_000_000_000_000 + micros);
    let mut operation = pending(namespace, operation_key, at(1));
    let identity = Arc::get_mut(&mut operation.identity).unwrap();
    identity.action_type = "a".repeat(80).into();
    identity.request_hash = std::array::from_fn(|i| u8::try_from(i * 7).unwrap());
    identity.labels = BTreeMap::from([
        ("team".to_owned(), "zahlung \"ü\" 💶".to_owned()),
        ("a/b".to_owned(), String::new()),
    ]);
    identity.parent_operation_key = Some("ü".repeat(200));
    identity.payload_json =
        Some("{\"b\": 1.0, \"a\": \"\\u0000\\ud83d\\ude00 \\\" 😀\",\n\t\"b\":2}".to_owned());
    operation.state = State {
        status,
        version: i64::MAX - 1,
        attempt_count: i32::MAX,
        attempt_floor: 3,
        claim_ids: (0..32).map(|i| Uuid::from_u128(u128::MAX - i)).collect(),
        lease: (status == Status::InProgress).then(|| Lease {
            holder: "worker 'ü'; drop table --".to_owned(),
            claimed_at: at(2),
            until: at(3),
            duration_ms: i64::MAX,
            two_step: true,
        }),
        dispatched: true,
        external_id: Some("é".repeat(200)),
        result_json: Some(" {\"z\":1e2,\"a\":[1.10,\"\\u0000\"]} ".to_owned()),
        error_code: Some("x".repeat(100)),
        error_message: Some("line\n\ttab \u{301}".repeat(90)),
        first_attempt_at: Some(at(4)),
        attempt_ended_at: Some(at(5)),
        unknown_since: Some(at(6)),
        escalate_at: Some(at(7)),
        next_check_at: Some(Timestamp(0)),
        check_count: i32::MIN,
        deliver_at: Some(at(10)),
        check_lease: Some(CheckLease {
            holder: "checker \"ü\"".to_owned(),
            until: at(11),
            duration_ms: i64::MIN,
        }),
        check_lease_count: i32::MAX,
        poll_id: Some(Uuid::from_u128(7)),
        review_reason: Some("outcome_conflict".to_owned()),
        review_since: Some(Timestamp(-1)),
        conflict_count: 4,
        outcome_conflict_count: 5,
        reports: Reports::from_bytes(&std::array::from_fn::<u8, 48, _>(|i| u8::try_from(255 - i).unwrap()))
            .unwrap(),
        updated_at: at(8),
        completed_at: Some(at(9)),
        retain_until: Some(at(12)),
        result_forgotten_at: Some(at(13)),
    };
    operation
}

pub fn event(operation: &Operation, kind: EventKind, detail: Detail) -> Event {
    Event {
        version: operation.state.version,
        kind,
        status: operation.state.status,
        attempt: operation.state.attempt_count,
        actor: "agent ü".into(),
        at: operation.state.updated_at,
        detail,
    }
}

pub fn insert(operation: &Operation) -> Write {
    Write {
        expected: None,
        due_before: Due::default(),
        after: operation.clone(),
        events: vec![event(operation, EventKind::Registered, Detail::default())],
        forgets: Forgets::Nothing,
    }
}

/// The step from `before` to a copy of it that `change` has changed, with one event.
pub fn step(before: &Operation, kind: EventKind, change: impl FnOnce(&mut State)) -> Write {
    let mut after = before.clone();
    after.state.version += 1;
    change(&mut after.state);
    let detail = Detail::default().with_changes(&before.state, &after.state);
    Write {
        expected: Some(before.revision()),
        due_before: Due::of(before),
        events: vec![event(&after, kind, detail)],
        after,
        forgets: Forgets::Nothing,
    }
}

pub fn claim(before: &Operation, now: Timestamp) -> Write {
    step(before, EventKind::Claimed, |state| {
        state.status = Status::InProgress;
        state.attempt_count += 1;
        state.claim_ids.push(Uuid::new_v4());
        state.lease = Some(Lease {
            holder: String::new(),
            claimed_at: now,
            until: now.plus(30 * SECOND),
            duration_ms: 30_000,
            two_step: false,
        });
        state.dispatched = true;
        state.first_attempt_at.get_or_insert(now);
        state.updated_at = now;
    })
}

pub async fn now(store: &dyn Store) -> DecidedAt {
    let now = store.load(&[]).await.unwrap().now;
    DecidedAt { now, tolerance: SECOND }
}

/// Swaps a batch, sorted as the store wants it, and says what was written in the order given.
pub async fn swap(store: &dyn Store, mut writes: Vec<Write>) -> Vec<bool> {
    let order: Vec<Key> = writes.iter().map(|write| write.after.key().clone()).collect();
    writes.sort_by(|a, b| a.after.key().cmp(b.after.key()));
    let written = store.swap(now(store).await, &writes).await.unwrap().written;
    let by_key: HashMap<_, _> = writes.iter().map(|write| write.after.key().clone()).zip(written).collect();
    order.iter().map(|key| by_key[key]).collect()
}

pub async fn load(store: &dyn Store, key: &Key) -> Option<Operation> {
    store.load(std::slice::from_ref(key)).await.unwrap().rows.pop().unwrap()
}

/// Compares in full without printing secrets.
#[track_caller]
pub fn assert_same(stored: Option<&Operation>, expected: &Operation) {
    assert!(stored == Some(expected), "stored {stored:?}, expected {expected:?}");
}

/// `Write` is not `Clone` in the crate: nothing but a test needs it.
pub trait CloneForTest {
    fn clone_for_test(&self) -> Self;
}

impl CloneForTest for Write {
    fn clone_for_test(&self) -> Self {
        Write {
            expected: self.expected,
            due_before: self.due_before,
            after: self.after.clone(),
            events: self.events.clone(),
            forgets: self.forgets,
        }
    }
}
