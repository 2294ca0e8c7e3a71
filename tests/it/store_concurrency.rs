//! Goal: whoever else writes, and whoever goes away, no change is half there and none is lost.
//! Method: overlapping batches from several tasks and two stores; futures dropped at any moment;
//! then the tables are compared with each other.

use crate::{
    harness::{Database, on_each_store},
    records::{SECOND, claim, insert, now, pending, step, swap},
};
use opledger::{
    ledger::{EventKind, Key, Operation, Status},
    store::{DecidedAt, ListQuery, Settings, Write},
};
use std::{sync::Arc, time::Duration};

/// Several tasks move the same operations on, in batches that overlap: no deadlock, and every
/// success is a version of its own.
#[test]
fn overlapping_batches_exclude_each_other() {
    on_each_store(|database, store| async move {
        const OPERATIONS: usize = 40;
        const ROUNDS: usize = 60;
        let store_of_another_replica =
            database.open_with(&Settings { connections: 4, ..Settings::default() }).await;
        let keys: Arc<Vec<Key>> =
            Arc::new((0..OPERATIONS).map(|i| Key::new("default", &format!("k{i:02}"))).collect());
        let tasks: Vec<_> = (0..4_usize)
            .map(|task| {
                let store =
                    if task % 2 == 0 { Arc::clone(&store) } else { Arc::clone(&store_of_another_replica) };
                let keys = Arc::clone(&keys);
                tokio::spawn(async move {
                    let mut successes = 0_i64;
                    for round in 0..ROUNDS {
                        let first = (task * 7 + round * 3) % OPERATIONS;
                        let mut mine: Vec<Key> =
                            (first..first + 25).map(|i| keys[i % OPERATIONS].clone()).collect();
                        mine.sort();
                        let snapshot = store.load(&mine).await.unwrap();
                        let writes: Vec<Write> = mine
                            .iter()
                            .zip(&snapshot.rows)
                            .map(|(key, row)| match row {
                                None => insert(&pending("default", &key.operation_key, snapshot.now)),
                                Some(operation) if operation.state.lease.is_some() => {
                                    step(operation, EventKind::Released, |state| {
                                        state.status = Status::Pending;
                                        state.lease = None;
                                        state.claim_ids.clear();
                                    })
                                }
                                Some(operation) => claim(operation, snapshot.now),
                            })
                            .collect();
                        let decided = DecidedAt { now: snapshot.now, tolerance: 10 * SECOND };
                        let swapped = store.swap(decided, &writes).await.unwrap();
                        successes +=
                            i64::try_from(swapped.written.iter().filter(|written| **written).count())
                                .unwrap();
                    }
                    successes
                })
            })
            .collect();
        let mut successes = 0;
        for task in tasks {
            successes += task.await.unwrap();
        }
        assert_eq!(
            database.number("select cast(sum(version) as bigint) from agent_operations").await,
            successes
        );
        assert_eq!(database.number("select count(*) from agent_operation_events").await, successes);
        assert_consistent(&database).await;
    });
}

/// Callers go away at any moment: what was begun is done or not done, and the store goes on.
#[test]
fn dropped_calls_leave_no_half_change() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        for round in 0..200_u64 {
            let operations: Vec<Operation> = (0..20)
                .map(|i| claim(&pending("default", &format!("r{round:03}k{i:02}"), at), at).after)
                .collect();
            let writes: Vec<Write> = operations.iter().map(insert).collect();
            let decided = now(&*store).await;
            let patience = Duration::from_micros(round * 17);
            if let Ok(swapped) = tokio::time::timeout(patience, store.swap(decided, &writes)).await {
                assert_eq!(swapped.unwrap().written, [true; 20]);
            }
            let keys: Vec<Key> = operations.iter().map(|operation| operation.key().clone()).collect();
            drop(tokio::time::timeout(patience / 4, store.load(&keys)).await);
            let query = ListQuery { namespace: "default".to_owned(), limit: 50, ..ListQuery::default() };
            drop(tokio::time::timeout(patience / 4, store.list(&query)).await);
        }
        // What is still on its way ends by itself.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let last = pending("default", "zz-last", at);
        assert_eq!(swap(&*store, vec![insert(&last)]).await, [true]);
        let whole = "select count(*) from (select substr(operation_key, 1, 4) from agent_operations \
                     where operation_key <> 'zz-last' group by 1 having count(*) <> 20) as part";
        assert_eq!(database.number(whole).await, 0, "each batch is there as a whole or not at all");
        assert_consistent(&database).await;
    });
}

/// Every record has an event for each version, and its lease is due.
async fn assert_consistent(database: &Database) {
    let events = "select count(*) from agent_operations as o where o.version <> \
                  (select count(*) from agent_operation_events as e where e.operation_id = o.operation_id) \
                  and o.attempt_count = 0";
    assert_eq!(database.number(events).await, 0);
    let without_event = "select count(*) from agent_operations as o where not exists \
                         (select 1 from agent_operation_events as e where e.operation_id = o.operation_id \
                         and e.version = o.version)";
    assert_eq!(database.number(without_event).await, 0);
    let without_due = "select count(*) from agent_operations as o where (o.lease_until is not null) <> exists \
                       (select 1 from agent_operation_due as d where d.operation_id = o.operation_id)";
    assert_eq!(database.number(without_due).await, 0);
    let orphans = "select (select count(*) from agent_operation_due where operation_id not in \
                   (select operation_id from agent_operations)) + (select count(*) from agent_operation_events \
                   where operation_id not in (select operation_id from agent_operations))";
    assert_eq!(database.number(orphans).await, 0);
}
