//! Goal: what the policies no longer keep is deleted, whole and only then; late retries still replay; nothing
//! unresolved is touched. Method: hand-made records for the store's promises; then many finished operations
//! under a load, on each back end.

use crate::{
    harness::{Database, on_each_store},
    records::{insert, load, now, pending, step, swap},
    script::POLICIES,
};
use opledger::{
    engine::{self, Engine},
    ledger::{
        Action, ClaimOptions, Command, Due, Event, EventKind, Key, Operation, Outcome, Status, Timestamp,
        command::{Complete, Register},
        event::Detail,
        replay,
    },
    policy_file::{self, Policies},
    store::{Forgets, Store, Write},
    telemetry::Metrics,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(86_400);

/// An operation that succeeded `days` days before `at`, with a result, a payload and a plan to forget it.
fn finished(key: &str, action_type: &str, at: Timestamp, days: u32) -> Operation {
    let completed_at = at.minus(days * DAY);
    let mut operation = pending("default", key, completed_at);
    let identity = Arc::get_mut(&mut operation.identity).unwrap();
    identity.action_type = action_type.into();
    identity.payload_json = Some("{\"amount\":\"1\"}".to_owned());
    let state = &mut operation.state;
    state.status = Status::Succeeded;
    state.version = 2;
    state.attempt_count = 1;
    state.external_id = Some(format!("effect of {key}"));
    state.result_json = Some("{\"ok\":true}".to_owned());
    state.completed_at = Some(completed_at);
    state.first_attempt_at = Some(completed_at);
    state.retain_until = Some(completed_at.plus(DAY));
    operation
}

/// Its first write: two events, so that there is a history to forget.
fn inserted(operation: &Operation) -> Write {
    let mut write = insert(operation);
    let mut last = write.events[0].clone();
    write.events[0].version = 1;
    last.kind = EventKind::Succeeded;
    write.events.push(last);
    write
}

fn forget_result(before: &Operation) -> Write {
    let mut write = step(before, EventKind::ResultForgotten, |state| {
        state.result_json = None;
        state.result_forgotten_at = state.completed_at;
        state.retain_until = None;
    });
    Arc::make_mut(&mut write.after.identity).payload_json = None;
    write.forgets = Forgets::History;
    write
}

fn forget_key(before: &Operation) -> Write {
    Write {
        expected: Some(before.revision()),
        due_before: Due::of(before),
        after: before.clone(),
        events: Vec::new(),
        forgets: Forgets::Key,
    }
}

async fn kinds(store: &dyn Store, key: &Key) -> Option<Vec<&'static str>> {
    let events = store.events(key, 0, 100).await.unwrap()?;
    Some(events.into_iter().map(|stored| stored.event.kind.as_str()).collect())
}

#[test]
fn what_is_forgotten_goes_with_the_write() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|key| finished(key, "tidy", at, 9));
        swap(&*store, [&a, &b, &c, &d].map(inserted).into()).await;
        assert_eq!(database.number("select count(*) from agent_operation_due").await, 4);

        // Of another version nothing goes.
        let mut stale = [forget_key(&a), forget_result(&b)];
        for write in &mut stale {
            write.expected.as_mut().unwrap().version -= 1;
        }
        assert_eq!(swap(&*store, stale.into()).await, [false, false]);
        let mut stale = forget_key(&a);
        stale.expected.as_mut().unwrap().conflict_count += 1;
        assert_eq!(swap(&*store, vec![stale]).await, [false]);
        assert_eq!(kinds(&*store, a.key()).await.unwrap(), ["registered", "succeeded"]);
        assert_eq!(load(&*store, b.key()).await, Some(b.clone()));

        // In one batch: a key, a result, an ordinary change, a new operation, a key that is not there.
        let forgotten = forget_result(&b);
        let expected = forgotten.after.clone();
        let changed = step(&c, EventKind::OutcomeConflict, |state| state.outcome_conflict_count = 1);
        let added = finished("e", "tidy", at, 9);
        let gone = finished("f", "tidy", at, 9);
        let writes = vec![forget_key(&a), forgotten, changed, inserted(&added), forget_key(&gone)];
        assert_eq!(swap(&*store, writes).await, [true, true, true, true, false]);

        assert_eq!(load(&*store, a.key()).await, None);
        assert_eq!(kinds(&*store, a.key()).await, None);
        assert_eq!(load(&*store, b.key()).await, Some(expected));
        assert_eq!(kinds(&*store, b.key()).await.unwrap(), ["result_forgotten"]);
        assert_eq!(kinds(&*store, c.key()).await.unwrap(), ["registered", "succeeded", "outcome_conflict"]);
        assert_eq!(kinds(&*store, d.key()).await.unwrap(), ["registered", "succeeded"]);
        assert_eq!(load(&*store, d.key()).await, Some(d));
        assert_eq!(database.number("select count(*) from agent_operation_due").await, 3);
        assert_eq!(database.number(ORPHANS).await, 0);

        // The key is free again, and nothing of its first life comes back.
        let again = pending("default", "a", at);
        assert_eq!(swap(&*store, vec![insert(&again)]).await, [true]);
        assert_eq!(load(&*store, again.key()).await, Some(again.clone()));
        assert_eq!(kinds(&*store, again.key()).await.unwrap(), ["registered"]);
    });
}

/// Events and due work that belong to nobody.
const ORPHANS: &str = "select (select count(*) from agent_operation_due where operation_id not in (select \
                       operation_id from agent_operations)) + (select count(*) from agent_operation_events \
                       where operation_id not in (select operation_id from agent_operations))";

/// A policy that was changed after the operation finished: today's decides, and nothing is forgotten early.
#[test]
fn a_longer_time_moves_the_moment() {
    on_each_store(|_, store| async move {
        let at = now(&*store).await.now;
        // Planned for a day; the policy says a year by now, or for ever.
        let year = "tool_policy:\n  tidy:\n    retention: { result_days: 365 }\n";
        let [a, b] = [finished("a", "tidy", at, 9), finished("b", "other", at, 9)];
        swap(&*store, [&a, &b].map(inserted).into()).await;
        let engine = crate::play::engine(store.clone(), year);
        for operation in [&a, &b] {
            let reply = engine.observe(operation.key()).await.unwrap();
            assert_eq!(reply.operation.state.result_json, operation.state.result_json);
            let stored = load(&*store, operation.key()).await.unwrap();
            assert_eq!(stored.state.version, operation.state.version);
            let planned = stored.state.retain_until.unwrap();
            match &*operation.identity.action_type {
                "tidy" => assert_eq!(planned, operation.state.completed_at.unwrap().plus(365 * DAY)),
                _ => assert!(planned > at.plus(29 * DAY), "kept for ever, and looked at again"),
            }
        }
        assert!(store.due(opledger::ledger::DueKind::Retain, 10).await.unwrap().is_empty());
        engine.stop().await;
    });
}

/// Commands that are queued behind the end of their key are decided on what is there afterwards.
#[test]
fn a_key_may_end_and_begin_in_one_batch() {
    on_each_store(|_, store| async move {
        let at = now(&*store).await.now;
        let old = finished("k", "gone", at, 9);
        swap(&*store, vec![inserted(&old)]).await;
        let engine = crate::play::engine(store.clone(), POLICIES);
        let key = old.key().clone();
        let observed = engine.observe(&key);
        let registered = engine.execute(register(&key, "gone", 1, None));
        let (observed, registered) = tokio::join!(observed, registered);
        let refused = |error| matches!(error, engine::Error::Refused(_));
        assert!(observed.is_err_and(refused), "it is gone");
        let reply = registered.unwrap();
        assert!(reply.created, "{reply:?}");
        let record = load(&*store, &key).await.unwrap();
        assert_eq!((record.state.version, record.state.status), (1, Status::Pending));
        assert_ne!(record.identity.operation_id, old.identity.operation_id);
        engine.stop().await;
    });
}

fn register(key: &Key, action_type: &str, hash: u8, claim: Option<ClaimOptions>) -> Command {
    let action = Action::Register(Box::new(Register {
        operation_id: Uuid::now_v7(),
        lease_secret: *Uuid::new_v4().as_bytes(),
        action_type: action_type.into(),
        request_hash: [hash; 32],
        hash_scheme: "jcs-sha256/1".into(),
        labels: BTreeMap::new(),
        parent_operation_key: None,
        payload_json: None,
        claim,
    }));
    Command { key: key.clone(), actor: "tester".into(), action }
}

fn engine(store: Arc<dyn Store>, sweep_interval: Duration) -> Engine {
    let policies = Policies::of(policy_file::parse(POLICIES).expect("policies").0);
    let settings = engine::Settings { sweep_interval, ..engine::Settings::default() };
    Engine::start(store, policies, settings, Metrics::new())
}

/// Registers, claims and completes until told to stop; gives the latency of each call.
async fn load_until(engine: Engine, name: String, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut latencies = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = Key::new("load", &format!("{name}-{number}"));
        let options = ClaimOptions {
            claim_id: Uuid::new_v4(),
            worker_id: String::new(),
            lease_duration: None,
            two_step: false,
            poll_id: None,
        };
        let begun = Instant::now();
        let reply = engine.execute(register(&key, "tidy", 7, Some(options))).await.unwrap();
        latencies.push(begun.elapsed());
        let action = Action::Complete(Complete {
            token: reply.lease.expect("it was free").token,
            outcome: Outcome::Succeeded { external_id: Some("e".into()), result_json: Some("{}".into()) },
        });
        let begun = Instant::now();
        engine.execute(Command { key, actor: "tester".into(), action }).await.unwrap();
        latencies.push(begun.elapsed());
    }
    latencies
}

/// Runs a load until `enough`; gives its p99.
async fn under_load(engine: &Engine, phase: &str, enough: impl Future<Output = ()>) -> (Duration, usize) {
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..8)
        .map(|worker| tokio::spawn(load_until(engine.clone(), format!("{phase}-{worker}"), stop.clone())))
        .collect();
    enough.await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for worker in workers {
        latencies.extend(worker.await.unwrap());
    }
    latencies.sort_unstable();
    (latencies[latencies.len() * 99 / 100], latencies.len())
}

/// Finished operations in the large test: a quarter loses its key, the rest its result.
const FINISHED: usize = 20_000;

async fn seed(store: &dyn Store, at: Timestamp) -> Vec<Operation> {
    let mut kept = Vec::new();
    let mut writes = Vec::new();
    for number in 0..FINISHED {
        let action_type = if number % 4 == 0 { "brief" } else { "tidy" };
        writes.push(inserted(&finished(&format!("old-{number:05}"), action_type, at, 100)));
    }
    for number in 0..300 {
        let mut unknown = finished(&format!("unknown-{number}"), "brief", at, 100);
        unknown.state.status = Status::Unknown;
        unknown.state.completed_at = None;
        unknown.state.unknown_since = Some(at.minus(100 * DAY));
        unknown.state.next_check_at = Some(at.plus(DAY));
        let mut review = finished(&format!("review-{number}"), "brief", at, 100);
        review.state.review_reason = Some("outcome_conflict".to_owned());
        review.state.review_since = Some(at);
        let waiting = pending("default", &format!("pending-{number}"), at.minus(100 * DAY));
        let mut fresh = finished(&format!("fresh-{number}"), "tidy", at, 0);
        fresh.state.retain_until = Some(at.plus(DAY));
        kept.extend([unknown, review, waiting, fresh]);
    }
    writes.extend(kept.iter().map(inserted));
    writes.sort_by(|a, b| a.after.key().cmp(b.after.key()));
    while !writes.is_empty() {
        let rest = writes.split_off(writes.len().min(500));
        let written = swap(store, writes).await;
        assert!(written.iter().all(|written| *written));
        writes = rest;
    }
    kept
}

async fn nothing_due(database: &Database) {
    let due = "select count(*) from agent_operation_due as d join agent_operations as o on o.operation_id = \
               d.operation_id where d.kind = 'retain' and o.namespace = 'default' and o.operation_key like 'old-%'";
    let begun = Instant::now();
    while database.number(due).await > 0 {
        assert!(begun.elapsed() < Duration::from_secs(180), "retention does not get to its end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn everything_due_is_forgotten_under_a_load() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        // First the load alone.
        let quiet = engine(store.clone(), Duration::from_secs(3600));
        let (alone, calls) = under_load(&quiet, "alone", tokio::time::sleep(Duration::from_secs(2))).await;
        println!("{:?}: alone p99 {alone:?} over {calls} calls", database.backend);
        quiet.stop().await;

        let kept = seed(&*store, at).await;
        let engine = engine(store.clone(), Duration::from_millis(10));
        let begun = Instant::now();
        let (with, calls) = {
            let elsewhere = engine.clone();
            under_load(&elsewhere, "with", nothing_due(&database)).await
        };
        println!(
            "{:?}: {FINISHED} forgotten in {:?}; p99 {with:?} over {calls} calls",
            database.backend,
            begun.elapsed()
        );

        assert_forgotten(&database, &*store).await;
        for operation in &kept {
            assert_eq!(load(&*store, operation.key()).await.as_ref(), Some(operation), "touched");
        }
        late_retries_replay(&engine, &*store).await;
        engine.stop().await;
    });
}

async fn assert_forgotten(database: &Database, store: &dyn Store) {
    let count = |condition: &str| {
        format!("select count(*) from agent_operations where operation_key like 'old-%' and {condition}")
    };
    let tombstones = i64::try_from(FINISHED - FINISHED / 4).unwrap();
    assert_eq!(database.number(&count("action_type = 'brief'")).await, 0, "keys are gone");
    assert_eq!(database.number(&count("result_forgotten_at is not null")).await, tombstones);
    let kept = "result_json is not null or payload_json is not null or error_message is not null";
    assert_eq!(database.number(&count(&format!("({kept})"))).await, 0);
    let one_event = "(select count(*) from agent_operation_events as e where e.operation_id = \
                     agent_operations.operation_id) = 1 and external_id is not null";
    assert_eq!(database.number(&count(one_event)).await, tombstones);
    assert_eq!(database.number(ORPHANS).await, 0);
    for number in (1..FINISHED).step_by(999).filter(|number| number % 4 != 0) {
        let key = Key::new("default", &format!("old-{number:05}"));
        let record = load(store, &key).await.unwrap();
        let events = store.events(&key, 0, 10).await.unwrap().unwrap();
        let events: Vec<Event> = events.into_iter().map(|stored| stored.event).collect();
        assert_eq!(events[0].kind, EventKind::ResultForgotten);
        assert_ne!(events[0].detail, Detail::default());
        assert_eq!(replay(record.identity.clone(), &events), record, "the event tells all that is left");
    }
}

async fn late_retries_replay(engine: &Engine, store: &dyn Store) {
    for number in 0..200 {
        let key = Key::new("default", &format!("old-{number:05}"));
        let action_type = if number % 4 == 0 { "brief" } else { "tidy" };
        let reply = engine.execute(register(&key, action_type, 7, None)).await.unwrap();
        if number % 4 == 0 {
            assert!(reply.created, "a forgotten key is a new operation");
            continue;
        }
        assert!(reply.replayed);
        assert_eq!(reply.next_step, opledger::ledger::NextStep::UseResult);
        assert_eq!(reply.operation.state.external_id, Some(format!("effect of {}", key.operation_key)));
        assert!(reply.operation.state.result_forgotten_at.is_some());
        let other = engine.execute(register(&key, action_type, 8, None)).await;
        assert!(other.is_err(), "the hash is still checked");
        let record = load(store, &key).await.unwrap();
        assert_eq!(record.state.conflict_count, 1);
    }
}
