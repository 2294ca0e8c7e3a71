//! Goal: the change feed shows every accepted change exactly once, in order, to every watcher, whatever
//! writes and however watchers come and go.
//! Method: engines on one database, watched directly; what they see is compared with the event table.

use crate::{
    crew::{act, begin, claim, engine, engine_with, key, lose, register, renew, soon, succeed},
    harness::{Database, on_each_store},
    play::ShiftedClock,
    random::{Random, seed},
};
use opledger::{
    engine::{
        Engine, Error, Settings,
        feed::{End, Limits, Sent, Watch, Watching},
    },
    ledger::{EventKind, Key, Refusal},
    store::{Backend, FeedEvent, ListQuery, Store},
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;

/// An event, as far as its order goes.
type Seen = (i64, String, i64, EventKind);

fn all_after(after: i64) -> Watch {
    Watch { namespace: "default".into(), operation_key: None, after, action_types: Vec::new() }
}

fn one(operation_key: &str, after: i64) -> Watch {
    Watch { operation_key: Some(operation_key.into()), ..all_after(after) }
}

fn seen(event: &FeedEvent) -> Seen {
    let stored = &event.stored;
    (stored.sequence, stored.operation_key.clone(), stored.event.version, stored.event.kind)
}

/// The next event; heartbeats are passed over.
async fn next_event(watching: &mut Watching) -> FeedEvent {
    loop {
        match soon("an event", watching.sent.recv()).await {
            Some(Sent::Event(event)) => return *event,
            Some(Sent::CaughtUp(_)) => {}
            None => panic!("ended: {:?}", watching.end.try_recv()),
        }
    }
}

/// All that is sent until the end.
async fn to_the_end(mut watching: Watching) -> (Vec<Seen>, End) {
    let mut events = Vec::new();
    while let Some(sent) = soon("the end", watching.sent.recv()).await {
        if let Sent::Event(event) = sent {
            events.push(seen(&event));
        }
    }
    (events, soon("the reason", watching.end).await.unwrap())
}

/// The event table, operation by operation, brought into order.
async fn journal(store: &dyn Store) -> Vec<Seen> {
    let query = ListQuery { namespace: "default".into(), limit: 10_000, ..ListQuery::default() };
    let mut journal = Vec::new();
    for operation in store.list(&query).await.unwrap() {
        let events = store.events(operation.key(), 0, 10_000).await.unwrap().unwrap();
        journal
            .extend(events.into_iter().map(|e| (e.sequence, e.operation_key, e.event.version, e.event.kind)));
    }
    journal.sort_by_key(|event| event.0);
    journal
}

/// Does what comes to its mind with a few keys that others use as well.
async fn write(engine: Engine, mut random: Random, keys: u64, steps: u64) {
    let mut tokens = HashMap::new();
    for _ in 0..steps {
        let key = key(&format!("k{}", random.below(keys)));
        let token = tokens.get(&key).cloned();
        let action = match (random.below(8), token) {
            (0, _) => register("pay", 2, false),
            (1..=2, Some(token)) => renew(token),
            (3, Some(token)) => lose(token),
            (4..=5, Some(token)) => succeed(token),
            (6, _) => claim(),
            _ => register("pay", 1, random.below(3) > 0),
        };
        match act(&engine, &key, action).await {
            Ok(reply) => _ = reply.lease.map(|lease| tokens.insert(key, lease.token)),
            Err(Error::Refused(_) | Error::Contended) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Watches on one engine after the other, and leaves each in the middle of things. Ends at `end`.
async fn read(engines: Vec<Engine>, mut random: Random, end: tokio::sync::watch::Receiver<i64>) -> Vec<Seen> {
    let mut events = Vec::new();
    let mut upto = 0;
    loop {
        let engine = &engines[usize::try_from(random.below(engines.len() as u64)).unwrap()];
        let mut watching = engine.watch(all_after(upto)).await.unwrap();
        for _ in 0..random.below(120) + 1 {
            if *end.borrow() <= upto {
                return events;
            }
            match timeout(Duration::from_millis(200), watching.sent.recv()).await {
                Ok(Some(Sent::Event(event))) => {
                    upto = event.stored.sequence;
                    events.push(seen(&event));
                }
                Ok(Some(Sent::CaughtUp(sequence))) => upto = sequence,
                Ok(None) => panic!("ended: {:?}", watching.end.try_recv()),
                Err(_) => break,
            }
        }
    }
}

#[test]
fn every_change_is_seen_once_and_in_order() {
    let seed = seed("every_change_is_seen_once_and_in_order");
    on_each_store(|database, store| async move {
        let engines = vec![engine(store.clone()), engine(database.open().await)];
        let mut random = Random::new(seed);
        let (ended, end) = tokio::sync::watch::channel(i64::MAX);
        let readers: Vec<_> = (0..3)
            .map(|_| tokio::spawn(read(engines.clone(), Random::new(random.next()), end.clone())))
            .collect();
        let writers: Vec<_> = (0..8)
            .map(|n| tokio::spawn(write(engines[n % 2].clone(), Random::new(random.next()), 40, 60)))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let journal = journal(&*store).await;
        assert!(journal.len() > 100, "{}", journal.len());
        let count = database.number("select count(*) from agent_operation_events").await;
        assert_eq!(count, i64::try_from(journal.len()).unwrap());
        ended.send_replace(journal.last().unwrap().0);
        for reader in readers {
            let events = soon("a reader", reader).await.unwrap();
            assert_eq!(events, journal);
        }
        let mut versions: BTreeMap<&str, i64> = BTreeMap::new();
        for (sequence, key, version, kind) in &journal {
            let before = versions.insert(key, *version).unwrap_or(0);
            let step = i64::from(*kind != EventKind::ConflictRefused);
            assert!(*version == before + step, "{key} at {sequence}: {before}, then {version} by {kind:?}");
        }
        for engine in engines {
            engine.stop().await;
        }
    });
}

/// Runs a test on a new ledger in PostgreSQL, where there is one.
fn on_postgres<F: Future<Output = ()>>(test: impl Fn(Arc<Database>, Arc<dyn Store>) -> F) {
    on_each_store(|database, store| {
        let test = (database.backend == Backend::Postgres).then(|| test(database, store));
        async {
            if let Some(test) = test {
                test.await;
            }
        }
    });
}

#[test]
fn a_transaction_that_began_earlier_is_waited_for() {
    on_postgres(|database, store| async move {
        let engine = engine(store.clone());
        begin(&engine, &key("first")).await;
        let mut watching = engine.watch(all_after(0)).await.unwrap();
        next_event(&mut watching).await;
        next_event(&mut watching).await;

        // It has its number, and writes and commits only after somebody with a later one.
        let mut early = PgConnection::connect(&database.url).await.unwrap();
        let mut held = early.begin().await.unwrap();
        let (number,): (i64,) = sqlx::query_as("select pg_current_xact_id()::text::bigint << 12")
            .fetch_one(&mut *held)
            .await
            .unwrap();
        let token = begin(&engine, &key("second")).await;
        act(&engine, &key("second"), succeed(token)).await.unwrap();
        let later = database.number("select max(sequence) from agent_operation_events").await;
        assert!(number < later);
        assert!(store.feed_end().await.unwrap() < number, "nothing is shown beyond it");
        let nothing = async {
            while let Some(Sent::CaughtUp(upto)) = watching.sent.recv().await {
                assert!(upto < number);
            }
        };
        assert!(timeout(Duration::from_millis(600), nothing).await.is_err(), "an event came, or the end");
        // One key is followed all the same: its own changes are in order among themselves.
        let (events, _) = to_the_end(engine.watch(one("second", 0)).await.unwrap()).await;
        assert_eq!(events.len(), 3);

        sqlx::query(AssertSqlSafe(format!(
            "insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor)
             select operation_id, {number}, 3, now(), 1, 'renewed', 'in_progress', 'by hand'
             from agent_operations where operation_key = 'first'"
        )))
        .execute(&mut *held)
        .await
        .unwrap();
        held.commit().await.unwrap();
        assert_eq!(next_event(&mut watching).await.stored.sequence, number);
        for kind in [EventKind::Registered, EventKind::Claimed, EventKind::Succeeded] {
            let event = next_event(&mut watching).await;
            assert_eq!((&*event.stored.operation_key, event.stored.event.kind), ("second", kind));
        }
        engine.stop().await;
    });
}

#[test]
fn a_restored_dump_goes_on_upwards() {
    on_postgres(|database, store| async move {
        let first = engine(store.clone());
        begin(&first, &key("before")).await;
        first.stop().await;
        drop(store);
        // What a cluster that had done far more would have left in the dump.
        database.execute("update agent_operation_events set sequence = sequence + (1::bigint << 50)").await;
        let last = database.number("select max(sequence) from agent_operation_events").await;
        let stores = tokio::join!(database.open(), database.open(), database.open());
        let offset = database.number("select sequence_offset from agent_feed").await;
        assert!(offset > last && offset % 4096 == 0);
        assert_eq!(stores.0.feed_end().await.unwrap(), last, "what was there is shown");
        let engine = engine(stores.1);
        let token = begin(&engine, &key("after")).await;
        let (events, _) = {
            act(&engine, &key("after"), succeed(token)).await.unwrap();
            to_the_end(engine.watch(one("after", 0)).await.unwrap()).await
        };
        assert!(events.iter().all(|event| event.0 > offset), "{events:?}");
        let mut watching = engine.watch(all_after(last)).await.unwrap();
        assert_eq!(seen(&next_event(&mut watching).await), events[0]);
        // Only once.
        drop(database.open().await);
        assert_eq!(database.number("select sequence_offset from agent_feed").await, offset);
        engine.stop().await;
    });
}

#[test]
fn a_slow_reader_is_told_where_to_go_on_and_holds_nobody_up() {
    on_each_store(|_, store| async move {
        let limits = Limits { patience: Duration::from_secs(1), ..Limits::default() };
        let engine = engine_with(store, Settings { feed: limits, ..Settings::default() });
        let mut slow = engine.watch(all_after(0)).await.unwrap();
        let mut quick = engine.watch(all_after(0)).await.unwrap();
        let reading = tokio::spawn(async move {
            for _ in 0..60 {
                next_event(&mut quick).await;
            }
        });
        for n in 0..30 {
            begin(&engine, &key(&format!("k{n}"))).await;
        }
        soon("the quick one", reading).await.unwrap();
        let End::TooSlow(resume) = soon("the end", &mut slow.end).await.unwrap() else {
            panic!("another end");
        };
        let mut last = 0;
        let mut count = 0;
        while let Some(sent) = slow.sent.recv().await {
            if let Sent::Event(event) = sent {
                last = event.stored.sequence;
                count += 1;
            }
        }
        assert_eq!(last, resume, "what was sent before comes through");
        assert!((1..30).contains(&count), "{count} events were kept for it");
        let mut again = engine.watch(all_after(resume)).await.unwrap();
        for _ in count..60 {
            let event = next_event(&mut again).await;
            assert!(event.stored.sequence > last);
            last = event.stored.sequence;
        }
        engine.stop().await;
    });
}

#[test]
fn one_key_is_watched_until_it_is_finished() {
    on_each_store(|database, store| async move {
        let (engine, other) = (engine(store), engine(database.open().await));
        let token = begin(&engine, &key("k")).await;
        let mut watching = engine.watch(one("k", 0)).await.unwrap();
        assert_eq!(next_event(&mut watching).await.stored.event.kind, EventKind::Registered);
        let claimed = next_event(&mut watching).await.stored.sequence;
        begin(&engine, &key("another")).await;
        act(&other, &key("k"), renew(token.clone())).await.unwrap();
        assert_eq!(next_event(&mut watching).await.stored.event.kind, EventKind::Renewed);
        act(&other, &key("k"), succeed(token)).await.unwrap();
        let (events, end) = to_the_end(watching).await;
        assert_eq!(events.iter().map(|event| event.3).collect::<Vec<_>>(), [EventKind::Succeeded]);
        assert!(matches!(end, End::Finished), "{end:?}");

        let (events, end) = to_the_end(engine.watch(one("k", claimed)).await.unwrap()).await;
        assert_eq!(events.iter().map(|event| event.2).collect::<Vec<_>>(), [3, 4], "also afterwards");
        assert!(matches!(end, End::Finished), "{end:?}");
        let (events, _) = to_the_end(engine.watch(one("k", i64::MAX)).await.unwrap()).await;
        assert!(events.is_empty());
        let unknown = engine.watch(one("nothing", 0)).await.err().unwrap();
        let Error::Refused(refused) = unknown else { panic!("{unknown:?}") };
        assert_eq!(refused.refusal, Refusal::NotFound);
        for engine in [engine, other] {
            engine.stop().await;
        }
    });
}

#[test]
fn only_what_was_asked_for_is_sent() {
    on_each_store(|_, store| async move {
        let engine = engine(store);
        act(&engine, &key("a"), register("pay", 1, false)).await.unwrap();
        act(&engine, &key("b"), register("mail", 1, false)).await.unwrap();
        act(&engine, &Key::new("other", "c"), register("mail", 1, false)).await.unwrap();
        act(&engine, &key("b"), register("mail", 2, false)).await.unwrap_err();
        let mails = Watch { action_types: vec!["mail".into()], ..all_after(0) };
        let mut watching = engine.watch(mails).await.unwrap();
        for kind in [EventKind::Registered, EventKind::ConflictRefused] {
            let event = next_event(&mut watching).await;
            assert_eq!((&*event.stored.operation_key, event.stored.event.kind), ("b", kind));
        }
        let Some(Sent::CaughtUp(upto)) = soon("a heartbeat", watching.sent.recv()).await else {
            panic!("no heartbeat");
        };
        let mut rest = engine.watch(all_after(upto)).await.unwrap();
        act(&engine, &key("d"), register("pay", 1, false)).await.unwrap();
        assert_eq!(next_event(&mut rest).await.stored.operation_key, "d", "nothing lies before it");
        engine.stop().await;
    });
}

#[test]
fn watchers_are_sent_home_when_the_service_goes_down() {
    on_each_store(|_, store| async move {
        let limits = Limits { watchers: 2, heartbeat: Duration::from_millis(20), ..Limits::default() };
        let engine = engine_with(store, Settings { feed: limits, ..Settings::default() });
        begin(&engine, &key("k")).await;
        let mut watching = engine.watch(all_after(0)).await.unwrap();
        let second = engine.watch(one("k", 0)).await.unwrap();
        assert!(matches!(engine.watch(all_after(0)).await, Err(Error::Overloaded)));
        next_event(&mut watching).await;
        let last = next_event(&mut watching).await.stored.sequence;
        for _ in 0..3 {
            match soon("a heartbeat", watching.sent.recv()).await {
                Some(Sent::CaughtUp(upto)) => assert_eq!(upto, last),
                other => panic!("{other:?}"),
            }
        }
        engine.drain();
        let (_, end) = to_the_end(watching).await;
        assert!(matches!(end, End::Stopping(resume) if resume == last), "{end:?}");
        assert!(matches!(to_the_end(second).await.1, End::Stopping(_)));
        assert!(matches!(engine.watch(all_after(0)).await, Err(Error::Stopping)));
        act(&engine, &key("late"), register("pay", 1, false)).await.expect("work goes on");
        engine.stop().await;
    });
}

#[test]
fn a_thousand_idle_watchers_read_nothing() {
    on_each_store(|_, store| async move {
        let store = ShiftedClock::on(store);
        let engine = engine(store.clone());
        act(&engine, &key("busy"), register("pay", 1, false)).await.unwrap();
        let mut idle = Vec::new();
        for n in 0..1000 {
            let namespace = format!("idle-{n}");
            let watch = Watch { namespace, ..all_after(0) };
            idle.push(engine.watch(watch).await.unwrap());
        }
        for watching in &mut idle {
            let sent = soon("a heartbeat", watching.sent.recv()).await;
            assert!(matches!(sent, Some(Sent::CaughtUp(_))), "{sent:?}");
        }
        let mut busy = engine.watch(all_after(0)).await.unwrap();
        next_event(&mut busy).await;
        let before = store.feeds();
        for n in 0..50 {
            act(&engine, &key(&format!("k{n}")), register("pay", 1, false)).await.unwrap();
            next_event(&mut busy).await;
        }
        let reads = store.feeds() - before;
        println!("50 changes among a thousand idle watchers: {reads} pages were read");
        assert!(reads <= 60, "{reads}");
        // And those who watch the same thing read it together.
        let mut others = Vec::new();
        for _ in 0..100 {
            others.push(engine.watch(all_after(0)).await.unwrap());
        }
        for watching in &mut others {
            for _ in 0..51 {
                next_event(watching).await;
            }
        }
        let before = store.feeds();
        begin(&engine, &key("last")).await;
        for watching in &mut others {
            next_event(watching).await;
            next_event(watching).await;
        }
        let reads = store.feeds() - before;
        println!("one change for a hundred watchers: {reads} pages were read");
        assert!(reads < 50, "{reads}");
        engine.stop().await;
    });
}
