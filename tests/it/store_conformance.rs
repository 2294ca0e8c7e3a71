//! Goal: both back ends keep the promises of `store::Store`, and keep them alike.
//! Method: one suite, run on a new ledger of each kind.

use crate::{
    harness::on_each_store,
    records::{
        CloneForTest, SECOND, assert_same, claim, event, full, insert, load, now, pending, step, swap,
    },
};
use opledger::{
    ledger::{
        Due, DueKind, EventKind, Key, Operation, State, Status, Timestamp, event::Detail, operation::Revision,
    },
    store::{DecidedAt, Error, Forgets, ListQuery, PollQuery, Write},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

#[test]
fn every_field_survives() {
    on_each_store(|_, store| async move {
        let long = "k".repeat(200);
        let wide = "💶".repeat(200);
        let operations = [
            full("default", &long, Status::InProgress),
            full("n", &wide, Status::FailedFinal),
            pending("default", "a", Timestamp(1)),
            full(&"n".repeat(64), "' \" \\ % _ {} [] ` $1 ?1", Status::Unknown),
        ];
        assert_eq!(swap(&*store, operations.iter().map(insert).collect()).await, [true; 4]);
        for operation in &operations {
            assert_same(load(&*store, operation.key()).await.as_ref(), operation);
            let id = operation.identity.operation_id;
            let namespace = &operation.key().namespace;
            assert_eq!(store.find(namespace, id).await.unwrap().as_ref(), Some(operation.key()));
            assert_eq!(store.find("elsewhere", id).await.unwrap(), None);
            let query = ListQuery { namespace: namespace.to_string(), limit: 10, ..ListQuery::default() };
            let listed = store.list(&query).await.unwrap();
            let found = listed.iter().find(|found| found.identity.operation_id == id);
            assert_same(found, operation);
        }
        // The same values once more, now by an update.
        let mut write = claim(&operations[2], Timestamp(5));
        write.after.state = State { version: 2, ..operations[0].state.clone() };
        write.expected = Some(operations[2].revision());
        assert_eq!(swap(&*store, vec![write]).await, [true]);
        let mut expected = operations[2].clone();
        expected.state = State { version: 2, ..operations[0].state.clone() };
        assert_same(load(&*store, expected.key()).await.as_ref(), &expected);
        // And back to nothing set.
        let mut write = step(&expected, EventKind::Released, |_| ());
        write.after.state = State { version: 3, ..State::unborn(Timestamp(7)) };
        assert_eq!(swap(&*store, vec![write.clone_for_test()]).await, [true]);
        assert_same(load(&*store, expected.key()).await.as_ref(), &write.after);
    });
}

#[test]
fn load_answers_in_order_with_the_clock() {
    on_each_store(|_, store| async move {
        let first = store.load(&[]).await.unwrap();
        assert!(first.rows.is_empty());
        assert!(first.now > Timestamp(1_700_000_000_000_000), "{:?}", first.now);
        let (a, b) = (pending("default", "a", first.now), pending("default", "b", first.now));
        swap(&*store, vec![insert(&a), insert(&b)]).await;
        let keys = [
            Key::new("default", "b"),
            Key::new("default", "none"),
            Key::new("default", "a"),
            Key::new("x", "a"),
        ];
        let snapshot = store.load(&keys).await.unwrap();
        assert!(snapshot.now >= first.now && snapshot.now < first.now.plus(60 * SECOND));
        assert_eq!(snapshot.rows.len(), 4);
        assert_same(snapshot.rows[0].as_ref(), &b);
        assert!(snapshot.rows[1].is_none());
        assert_same(snapshot.rows[2].as_ref(), &a);
        assert!(snapshot.rows[3].is_none());
    });
}

#[test]
fn a_stale_write_leaves_nothing() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        let old = pending("default", "old", at);
        assert_eq!(swap(&*store, vec![insert(&old)]).await, [true]);
        let again = pending("default", "old", at);
        let claimed = claim(&old, at);
        let mut wrong_version = claimed.clone_for_test();
        wrong_version.expected = Some(Revision { version: 2, conflict_count: 0 });
        let mut wrong_count = claimed.clone_for_test();
        wrong_count.expected = Some(Revision { version: 1, conflict_count: 1 });
        let mut not_there = claim(&pending("default", "nowhere", at), at);
        not_there.expected = Some(Revision { version: 1, conflict_count: 0 });
        for stale in [insert(&again), wrong_version, wrong_count, not_there] {
            let fresh = pending("default", &Uuid::new_v4().to_string(), at);
            assert_eq!(
                swap(&*store, vec![stale, insert(&fresh)]).await,
                [false, true],
                "its neighbour is written"
            );
        }
        assert_same(load(&*store, old.key()).await.as_ref(), &old);
        assert_eq!(database.number("select count(*) from agent_operations").await, 5);
        assert_eq!(database.number("select count(*) from agent_operation_events").await, 5);
        assert_eq!(database.number("select count(*) from agent_operation_due").await, 0);

        // The right one, twice: the second time it is stale.
        assert_eq!(swap(&*store, vec![claimed.clone_for_test()]).await, [true]);
        assert_eq!(swap(&*store, vec![claimed]).await, [false]);
        assert_eq!(database.number("select count(*) from agent_operation_due").await, 1);
        assert_eq!(database.number("select count(*) from agent_operation_events").await, 6);
    });
}

#[test]
fn conflicts_are_counted_without_a_version() {
    on_each_store(|_, store| async move {
        let at = now(&*store).await.now;
        let operation = pending("default", "k", at);
        swap(&*store, vec![insert(&operation)]).await;
        let mut after = operation.clone();
        after.state.conflict_count = 1;
        let conflict = Write {
            expected: Some(operation.revision()),
            due_before: Due::of(&operation),
            events: vec![event(&after, EventKind::ConflictRefused, Detail::default())],
            after: after.clone(),
            forgets: Forgets::Nothing,
        };
        assert_eq!(swap(&*store, vec![conflict.clone_for_test()]).await, [true]);
        assert_eq!(swap(&*store, vec![conflict]).await, [false], "the version is the same, the count is not");
        assert_same(load(&*store, after.key()).await.as_ref(), &after);
    });
}

#[test]
fn events_come_back_in_order() {
    on_each_store(|_, store| async move {
        let at = now(&*store).await.now;
        let (a, b) = (full("default", "a", Status::Unknown), pending("default", "b", at));
        let mut write = insert(&a);
        let detail = Detail {
            lease: Some(None),
            error_message: Some(Some("\"ü\"\n\\u0000".to_owned())),
            reason: Some("lease_expired".to_owned()),
            ..Detail::default()
        };
        write.events.push(event(&a, EventKind::LeaseExpired, detail));
        write.events.push(event(&a, EventKind::Escalated, Detail::default()));
        let expected = write.events.clone();
        swap(&*store, vec![write, insert(&b)]).await;
        let mut current = b.clone();
        for _ in 0..5 {
            let write = step(&current, EventKind::Renewed, |_| ());
            current = write.after.clone();
            assert_eq!(swap(&*store, vec![write]).await, [true]);
        }
        let stored = store.events(a.key(), 0, 100).await.unwrap().unwrap();
        assert_eq!(stored.iter().map(|stored| stored.event.clone()).collect::<Vec<_>>(), expected);
        assert!(stored.iter().all(|stored| stored.operation_key == "a"));

        let all = store.events(b.key(), 0, 100).await.unwrap().unwrap();
        assert_eq!(all.iter().map(|stored| stored.event.version).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert!(all.is_sorted_by(|a, b| a.sequence < b.sequence));
        let mut paged = Vec::new();
        let mut after = i64::MIN;
        loop {
            let page = store.events(b.key(), after, 4).await.unwrap().unwrap();
            let Some(last) = page.last() else { break };
            after = last.sequence;
            paged.extend(page.iter().map(|stored| stored.sequence));
        }
        assert_eq!(paged, all.iter().map(|stored| stored.sequence).collect::<Vec<_>>());
        assert!(store.events(&Key::new("default", "none"), 0, 4).await.unwrap().is_none());
    });
}

#[test]
fn due_work_is_set_moved_and_deleted() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        let ago = |seconds: u32| at.minus(seconds * SECOND);
        let unknown = |key: &str, check: Timestamp, escalate: Timestamp| {
            let mut operation = pending("default", key, at);
            operation.state.status = Status::Unknown;
            operation.state.next_check_at = Some(check);
            operation.state.escalate_at = Some(escalate);
            operation
        };
        let operations = [
            unknown("a", ago(1), ago(9)),
            unknown("b", ago(3), at.plus(60 * SECOND)),
            unknown("c", ago(2), ago(10)),
        ];
        swap(&*store, operations.iter().map(insert).collect()).await;
        let due = async |kind, limit| -> Vec<String> {
            let keys = match kind {
                DueKind::Sweep | DueKind::Review | DueKind::Retain => store.due(kind, limit).await.unwrap(),
                DueKind::Check | DueKind::Deliver => {
                    let query = PollQuery { namespace: "default".to_owned(), kind, action_types: Vec::new() };
                    let found = store.poll_due(&query, limit).await.unwrap();
                    found.into_iter().map(|candidate| candidate.key).collect()
                }
            };
            keys.iter().map(|key| key.operation_key.to_string()).collect()
        };
        assert_eq!(due(DueKind::Check, 10).await, ["b", "c", "a"], "longest due first");
        assert_eq!(due(DueKind::Check, 2).await, ["b", "c"]);
        assert_eq!(due(DueKind::Sweep, 10).await, ["c", "a"], "b is not due yet");
        assert!(due(DueKind::Review, 10).await.is_empty());

        let moved = step(&operations[1], EventKind::Checked, |state| state.next_check_at = Some(ago(0)));
        let gone = step(&operations[2], EventKind::Succeeded, |state| {
            state.status = Status::Succeeded;
            state.review_since = Some(ago(5));
            state.review_reason = Some("r".to_owned());
        });
        assert_eq!(swap(&*store, vec![moved, gone]).await, [true, true]);
        assert_eq!(due(DueKind::Check, 10).await, ["a", "b"]);
        assert_eq!(due(DueKind::Sweep, 10).await, ["a"]);
        assert_eq!(due(DueKind::Review, 10).await, ["c"]);
        assert_eq!(database.number("select count(*) from agent_operation_due").await, 5);
    });
}

#[test]
fn lists_are_filtered_paged_and_newest_first() {
    on_each_store(|_, store| async move {
        let mut operations = Vec::new();
        for number in 0..20_i64 {
            let mut operation = pending(
                if number == 19 { "other" } else { "default" },
                &format!("k{number:02}"),
                Timestamp(number),
            );
            let identity = Arc::get_mut(&mut operation.identity).unwrap();
            identity.operation_id = Uuid::from_u128(u128::try_from(number).unwrap() << 64 | 0xfedc);
            identity.action_type = if number % 2 == 0 { "even".into() } else { "odd".into() };
            if number % 3 == 0 {
                identity.labels = BTreeMap::from([
                    ("team".to_owned(), "a \"b\"".to_owned()),
                    ("n".to_owned(), number.to_string()),
                ]);
                identity.parent_operation_key = Some("parent".to_owned());
            }
            operation.state.status = Status::ALL[usize::try_from(number % 5).unwrap()];
            operation.state.review_reason = (number % 4 == 0).then(|| "r".to_owned());
            operations.push(operation);
        }
        swap(&*store, operations.iter().map(insert).collect()).await;
        let all = || ListQuery { namespace: "default".to_owned(), limit: 100, ..ListQuery::default() };
        let labels =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let cases: [(ListQuery, &[i64]); 10] = [
            (all(), &[18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
            (ListQuery { namespace: "other".to_owned(), ..all() }, &[19]),
            (
                ListQuery { statuses: vec![Status::Pending, Status::FailedFinal], ..all() },
                &[15, 14, 10, 9, 5, 4, 0],
            ),
            (
                ListQuery { action_types: vec!["odd".to_owned(), "none".to_owned()], limit: 3, ..all() },
                &[17, 15, 13],
            ),
            (ListQuery { review_required: Some(true), ..all() }, &[16, 12, 8, 4, 0]),
            (ListQuery { review_required: Some(false), limit: 2, ..all() }, &[18, 17]),
            (ListQuery { labels: labels(&[("team", "a \"b\"")]), limit: 2, ..all() }, &[18, 15]),
            (ListQuery { labels: labels(&[("team", "a \"b\""), ("n", "6")]), ..all() }, &[6]),
            (
                ListQuery { updated_after: Some(Timestamp(5)), updated_before: Some(Timestamp(8)), ..all() },
                &[7, 6, 5],
            ),
            (
                ListQuery {
                    parent_operation_key: Some("parent".to_owned()),
                    review_required: Some(true),
                    ..all()
                },
                &[12, 0],
            ),
        ];
        for (number, (query, expected)) in cases.into_iter().enumerate() {
            let listed = store.list(&query).await.unwrap();
            let numbers: Vec<i64> = listed.iter().map(|operation| operation.state.updated_at.0).collect();
            assert_eq!(numbers, expected, "case {number}");
        }
        let mut paged = Vec::new();
        let mut query = ListQuery { limit: 4, ..all() };
        loop {
            let page = store.list(&query).await.unwrap();
            let Some(last) = page.last() else { break };
            query.below = Some(last.identity.operation_id);
            paged.extend(page.iter().map(|operation| operation.state.updated_at.0));
        }
        assert_eq!(paged, (0..19).rev().collect::<Vec<_>>());
    });
}

#[test]
fn a_decision_of_another_time_is_stale() {
    on_each_store(|database, store| async move {
        let decided = now(&*store).await;
        let operation = pending("default", "k", decided.now);
        for (distance, tolerance, written) in [
            (-5_000_000, SECOND, false),
            (5_000_000, SECOND, false),
            (-5_000_000, Duration::ZERO, false),
            (i64::MIN / 2, SECOND, false),
            (i64::MAX / 2, SECOND, false),
            (-2_000_000, 10 * SECOND, true),
        ] {
            let decided = DecidedAt { now: Timestamp(decided.now.0.saturating_add(distance)), tolerance };
            let swapped = store.swap(decided, &[insert(&operation)]).await.unwrap();
            assert_eq!(swapped.written, [written], "{distance}");
            assert!(swapped.now > Timestamp(1_700_000_000_000_000), "the clock is answered all the same");
            assert_eq!(database.number("select count(*) from agent_operations").await, i64::from(written));
            assert_eq!(
                database.number("select count(*) from agent_operation_events").await,
                i64::from(written)
            );
        }
        // Any distance is within an endless tolerance.
        let decided = DecidedAt { now: Timestamp(0), tolerance: Duration::MAX };
        let other = pending("default", "other", decided.now);
        assert_eq!(store.swap(decided, &[insert(&other)]).await.unwrap().written, [true]);
    });
}

#[test]
fn large_batches_of_all_kinds() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        let mut current: Vec<Operation> =
            (0..512).map(|i| pending("default", &format!("k{i:04}"), at)).collect();
        let writes: Vec<Write> = current.iter().map(insert).collect();
        assert_eq!(swap(&*store, writes).await, [true; 512]);
        let mut writes: Vec<Write> = Vec::new();
        for (number, operation) in current.iter_mut().enumerate() {
            let mut write = claim(operation, at);
            for _ in 0..5 {
                write.events.push(event(&write.after, EventKind::Checked, Detail::default()));
            }
            if number % 2 == 0 {
                *operation = write.after.clone();
            } else {
                write.expected = Some(Revision { version: 9, conflict_count: 0 });
            }
            writes.push(write);
            let fresh = pending("default", &format!("k{number:04}+"), at);
            if number % 4 == 0 {
                writes.push(insert(&fresh));
            }
        }
        let written = swap(&*store, writes).await;
        assert_eq!(written.iter().filter(|written| **written).count(), 256 + 128);
        let keys: Vec<Key> = current.iter().map(|operation| operation.key().clone()).collect();
        let snapshot = store.load(&keys).await.unwrap();
        for (stored, expected) in snapshot.rows.iter().zip(&current) {
            assert_same(stored.as_ref(), expected);
        }
        assert_eq!(database.number("select count(*) from agent_operation_events").await, 512 + 256 * 6 + 128);
        assert_eq!(database.number("select count(*) from agent_operation_due").await, 256);
    });
}

#[test]
fn an_empty_batch_is_nothing() {
    on_each_store(|_, store| async move {
        assert!(swap(&*store, Vec::new()).await.is_empty());
    });
}

#[test]
fn a_value_that_the_database_refuses_is_a_fault_of_the_data() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        let mut poisoned = pending("default", "poisoned", at);
        poisoned.state.external_id = Some("secret".repeat(50));
        let mut lease_when_done = claim(&pending("default", "lease", at), at).after;
        lease_when_done.state.status = Status::Succeeded;
        for operation in [poisoned, lease_when_done] {
            let good = pending("default", "good", at);
            let decided = now(&*store).await;
            let Err(error) = store.swap(decided, &[insert(&good), insert(&operation)]).await else {
                panic!("it was taken");
            };
            assert!(matches!(error, Error::Data { .. }), "{error}");
            assert!(!error.is_indeterminate() && !error.is_retryable());
            assert!(!error.to_string().contains("secret"), "{error}");
            assert_eq!(database.number("select count(*) from agent_operations").await, 0);
        }
        let good = pending("default", "good", at);
        assert_eq!(swap(&*store, vec![insert(&good)]).await, [true], "the store goes on");
    });
}

#[test]
fn a_row_that_makes_no_sense_is_named() {
    on_each_store(|database, store| async move {
        let at = now(&*store).await.now;
        let operation = pending("default", "k", at);
        swap(&*store, vec![insert(&operation)]).await;
        database.execute("update agent_operations set labels = 'no json'").await;
        let Err(error) = store.load(std::slice::from_ref(operation.key())).await else {
            panic!("it was read");
        };
        let expected = Error::Corrupt {
            table: "agent_operations",
            column: "labels".to_owned(),
            key: "default/k".to_owned(),
        };
        assert_eq!(error, expected);
    });
}

#[test]
fn polls_find_work_by_namespace_kind_and_action_type() {
    on_each_store(|_, store| async move {
        let at = now(&*store).await.now;
        let unknown = |namespace: &str, key: &str, action_type: &str, due: Timestamp| {
            let mut operation = pending(namespace, key, at);
            Arc::get_mut(&mut operation.identity).unwrap().action_type = action_type.into();
            operation.state.status = Status::Unknown;
            operation.state.next_check_at = Some(due);
            operation
        };
        let held = |mut operation: Operation, poll: u128| {
            operation.state.poll_id = Some(Uuid::from_u128(poll));
            operation
        };
        let ago = |seconds: u32| at.minus(seconds * SECOND);
        let mut operations = [
            unknown("default", "a1", "a", ago(9)),
            unknown("default", "a2", "a", ago(8)),
            unknown("default", "a3", "a", ago(7)),
            unknown("default", "b1", "b", ago(3)),
            held(unknown("default", "c1", "c", at.plus(60 * SECOND)), 1),
            unknown("other", "o1", "a", ago(20)),
            held(unknown("other", "o2", "a", at.plus(60 * SECOND)), 1),
        ];
        operations.sort_by(|a, b| a.key().cmp(b.key()));
        swap(&*store, operations.iter().map(insert).collect()).await;

        let query = |kind, action_types: &[&str]| PollQuery {
            namespace: "default".to_owned(),
            kind,
            action_types: action_types.iter().map(|&action_type| action_type.to_owned()).collect(),
        };
        let found = async |action_types: &[&str], limit| -> Vec<String> {
            let found = store.poll_due(&query(DueKind::Check, action_types), limit).await.unwrap();
            found.iter().map(|c| format!("{} {}", c.action_type, c.key.operation_key)).collect()
        };
        assert_eq!(found(&[], 10).await, ["a a1", "a a2", "a a3", "b b1"]);
        assert_eq!(found(&[], 1).await, ["a a1", "b b1"], "so many of each action type");
        assert_eq!(found(&["b", "c", "none"], 10).await, ["b b1"], "c is not due yet");
        assert!(store.poll_due(&query(DueKind::Deliver, &[]), 10).await.unwrap().is_empty());

        let next = async |action_types: &[&str]| {
            store.poll_next(&query(DueKind::Check, action_types)).await.unwrap()
        };
        assert_eq!(next(&[]).await, Some(Duration::ZERO), "something is due now");
        let soon = next(&["c"]).await.expect("something will be due");
        assert!((SECOND * 30..=SECOND * 60).contains(&soon), "{soon:?}");
        assert_eq!(next(&["none"]).await, None);

        let polled = async |namespace: &str, poll: u128| -> Vec<String> {
            let keys = store.polled(namespace, Uuid::from_u128(poll)).await.unwrap();
            keys.iter().map(|key| key.operation_key.to_string()).collect()
        };
        assert_eq!(polled("default", 1).await, ["c1"]);
        assert_eq!(polled("other", 1).await, ["o2"]);
        assert!(polled("default", 2).await.is_empty());
    });
}
