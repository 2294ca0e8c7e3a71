//! Goal: who waits for a change hears of it at once, also where another replica made it, and costs the
//! database nothing meanwhile.
//! Method: two engines on one database. How long a wake-up took is printed.

use crate::{
    crew::{act, begin, engine, key, soon, succeed, until},
    harness::{Database, on_each_store},
    play::ShiftedClock,
};
use opledger::{
    engine::{Engine, Poll},
    ledger::{Action, DueKind, NextStep, Reply, Status, command::Register},
    store::{Backend, PollQuery, Store},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use uuid::Uuid;

/// Far below the time after which a waiting caller looks by itself.
const AT_ONCE: Duration = Duration::from_millis(1500);

fn is_finished(reply: &Reply) -> bool {
    reply.operation.state.status.is_terminal()
}

/// A caller that waits for the end of an operation.
fn wait(engine: &Engine, name: &str) -> JoinHandle<Reply> {
    let (engine, key) = (engine.clone(), key(name));
    tokio::spawn(async move {
        let deadline = Instant::now() + Duration::from_secs(60);
        engine.observe_until(&key, deadline, is_finished).await.unwrap()
    })
}

async fn replicas(database: &Database, store: Arc<dyn Store>) -> (Engine, Engine) {
    let (one, other) = (engine(store), engine(database.open().await));
    if database.backend == Backend::Postgres {
        until("word from the other replica", || async { one.hears_replicas() && other.hears_replicas() })
            .await;
    }
    (one, other)
}

/// Completes an operation on `other` while a caller waits on `one`; how long that caller took to hear of it.
async fn hears_after(one: &Engine, other: &Engine, name: &str) -> Duration {
    let token = begin(other, &key(name)).await;
    let waiting = wait(one, name);
    // It has looked, and waits: nothing shows that from outside.
    sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    act(other, &key(name), succeed(token)).await.unwrap();
    let since = Instant::now();
    assert_eq!(soon("the waiting caller", waiting).await.unwrap().operation.state.status, Status::Succeeded);
    since.elapsed()
}

#[test]
fn a_change_wakes_a_caller_of_another_replica() {
    on_each_store(|database, store| async move {
        let (one, other) = replicas(&database, store).await;
        let mut took = Vec::new();
        for n in 0..if database.backend == Backend::Postgres { 21 } else { 2 } {
            took.push(hears_after(&one, &other, &format!("k{n}")).await);
        }
        took.sort();
        println!(
            "{:?}: woken after {:?} (median), {:?} (worst)",
            database.backend,
            took[took.len() / 2],
            took[took.len() - 1]
        );
        if database.backend == Backend::Postgres {
            assert!(took[took.len() / 2] < AT_ONCE, "{took:?}");
        }
        for engine in [one, other] {
            engine.stop().await;
        }
    });
}

#[test]
fn new_work_wakes_a_poll_of_another_replica() {
    on_each_store(|database, store| async move {
        if database.backend == Backend::Sqlite {
            return;
        }
        let (one, other) = replicas(&database, store).await;
        let query =
            PollQuery { namespace: "default".into(), kind: DueKind::Deliver, action_types: Vec::new() };
        let poll = Poll {
            query,
            max: 1,
            poll_id: Uuid::new_v4(),
            worker_id: String::new(),
            lease_duration: None,
            actor: "test".into(),
        };
        let poller = one.clone();
        let polling = tokio::spawn(async move {
            poller.poll(&poll, Instant::now() + Duration::from_secs(60)).await.unwrap()
        });
        // It has looked, and waits.
        sleep(Duration::from_millis(100)).await;
        let Action::Register(request) = crate::crew::register("pay", 1, false) else { unreachable!() };
        let request = Register { payload_json: Some("{}".into()), ..*request };
        act(&other, &key("k"), Action::Register(Box::new(request))).await.unwrap();
        let since = Instant::now();
        assert_eq!(soon("the poll", polling).await.unwrap().len(), 1);
        println!("a poll was woken after {:?}", since.elapsed());
        assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
        for engine in [one, other] {
            engine.stop().await;
        }
    });
}

#[test]
fn a_broken_listener_only_costs_time() {
    on_each_store(|database, store| async move {
        if database.backend == Backend::Sqlite {
            return;
        }
        let (one, other) = replicas(&database, store).await;
        let token = begin(&other, &key("k")).await;
        let waiting = wait(&one, "k");
        sleep(Duration::from_millis(50)).await;
        let listeners = "from pg_stat_activity where datname = current_database() and query ilike 'listen%'";
        assert_eq!(database.number(&format!("select count(*) {listeners}")).await, 2);
        database.execute(&format!("select pg_terminate_backend(pid) {listeners}")).await;
        until("the loss to be noticed", || async { !one.hears_replicas() && !other.hears_replicas() }).await;
        act(&other, &key("k"), succeed(token)).await.unwrap();
        let since = Instant::now();
        soon("the waiting caller", waiting).await.unwrap();
        println!("without listeners: woken after {:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
        until("new listeners", || async { one.hears_replicas() && other.hears_replicas() }).await;
        let took = hears_after(&one, &other, "again").await;
        assert!(took < AT_ONCE, "{took:?}");
        for engine in [one, other] {
            engine.stop().await;
        }
    });
}

#[test]
fn sixty_four_callers_wait_without_asking_the_database() {
    on_each_store(|database, store| async move {
        let store = ShiftedClock::on(store);
        let (one, other) = replicas(&database, store.clone()).await;
        let token = begin(&other, &key("k")).await;
        let waiting: Vec<_> = (0..64).map(|_| wait(&one, "k")).collect();
        sleep(Duration::from_millis(200)).await;
        let before = store.loads();
        let window = Duration::from_secs(6);
        sleep(window).await;
        let looks = store.loads() - before;
        println!("{:?}: 64 callers, {window:?}: {looks} loads", database.backend);
        // The moments at which all look together: each may take a few batches.
        let moments = if database.backend == Backend::Postgres { 2 } else { 7 };
        assert!(looks <= moments * 3, "{looks}");
        let before = store.loads();
        act(&other, &key("k"), succeed(token)).await.unwrap();
        for caller in waiting {
            let reply = soon("a caller", caller).await.unwrap();
            assert_eq!(reply.next_step, NextStep::UseResult);
            assert_eq!(reply.operation.state.external_id.as_deref(), Some("e1"));
        }
        let looks = store.loads() - before;
        println!("{:?}: 64 callers were answered with {looks} loads", database.backend);
        assert!(looks <= 8, "{looks}");
        for engine in [one, other] {
            engine.stop().await;
        }
    });
}
