//! Goal: the figures on /metrics are those that SQL counts. Method: random histories of many operations on
//! each back end, then both are asked.

use crate::{
    harness::{Database, on_each_store},
    play,
    random::{Random, history, seed},
    script::{POLICIES, Player},
};
use opledger::{figures, store::Store, telemetry::Metrics};
use std::collections::BTreeMap;

/// The value of a metric, by name and labels.
fn value(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// All values of a family, by labels.
fn family(text: &str, name: &str) -> BTreeMap<String, i64> {
    let with_labels = |line: &str| -> Option<(String, i64)> {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?;
        Some((labels.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(with_labels).collect()
}

async fn count(database: &Database, condition: &str) -> i64 {
    database.number(&format!("select count(*) from agent_operations where {condition}")).await
}

/// An age in seconds, on the clock of the database.
async fn age(database: &Database, of: &str, condition: &str) -> i64 {
    let (now, unit) = match database.backend {
        opledger::store::Backend::Postgres => {
            (format!("extract(epoch from clock_timestamp() - min({of}))"), "")
        }
        opledger::store::Backend::Sqlite => {
            (format!("(unixepoch('subsec') * 1000000 - min({of}))"), " / 1000000")
        }
    };
    let sql =
        format!("select cast(coalesce({now}{unit}, 0) as bigint) from agent_operations where {condition}");
    database.number(&sql).await
}

#[test]
fn figures_are_what_sql_counts() {
    let seed = seed("figures_are_what_sql_counts");
    on_each_store(|database, store| async move {
        let target = play::on(store.clone(), POLICIES);
        let metrics = Metrics::new();
        let mut random = Random::new(seed);
        let mut kinds = 0;
        for number in 0..400 {
            let mut player = Player::new(&target, &format!("figures-{number}"));
            let steps = random.below(8);
            for step in history(&mut random, steps + 1) {
                player.step(&step).await;
            }
        }
        figures::read(&*store, &metrics).await.unwrap();
        let text = metrics.encode();

        let states = [
            ("in_progress", "status = 'in_progress'"),
            ("unknown", "status = 'unknown'"),
            ("pending_delivery", "status = 'pending' and deliver_at is not null and review_reason is null"),
        ];
        let shown = family(&text, "opledger_operations");
        let reviews = family(&text, "opledger_reviews_waiting");
        for action_type in ["pay", "mail", "same-key", "ask", "keep", "brief", "tidy", "gone"] {
            for (status, condition) in states {
                let labels = format!("status=\"{status}\",action_type=\"{action_type}\"");
                let expected =
                    count(&database, &format!("{condition} and action_type = '{action_type}'")).await;
                assert_eq!(shown.get(&labels).copied().unwrap_or(0), expected, "{labels}\n{text}");
                kinds += i64::from(expected > 0);
            }
            let labels = format!("action_type=\"{action_type}\"");
            let in_review = format!("review_reason is not null and action_type = '{action_type}'");
            let expected = count(&database, &in_review).await;
            assert_eq!(reviews.get(&labels).copied().unwrap_or(0), expected, "reviews {labels}\n{text}");
        }
        assert!(kinds > 5, "the histories leave work behind");

        let is_due = "status = 'unknown' and next_check_at <= ";
        let now = match database.backend {
            opledger::store::Backend::Postgres => "clock_timestamp()",
            opledger::store::Backend::Sqlite => "unixepoch('subsec') * 1000000",
        };
        let due = count(&database, &format!("{is_due}{now}")).await;
        assert_eq!(value(&text, "opledger_checks_due"), Some(due as f64));
        // The histories run ahead of the database's clock, so most ages are none yet: these are put back.
        assert_ages(&database, &*store, &metrics).await;
        target.engine.stop().await;
    });
}

async fn assert_ages(database: &Database, store: &dyn Store, metrics: &Metrics) {
    let hours = |count: u32| match database.backend {
        opledger::store::Backend::Postgres => format!("clock_timestamp() - interval '{count} hours'"),
        opledger::store::Backend::Sqlite => {
            format!("cast((unixepoch() - 3600 * {count}) * 1000000 as integer)")
        }
    };
    for (table, column, kinds, count) in [
        ("agent_operation_due", "unknown_since", "unknown_since is not null", 5),
        ("agent_operations", "unknown_since", "status = 'unknown'", 5),
        ("agent_operation_due", "due_at", "kind = 'review'", 3),
        ("agent_operations", "review_since", "review_reason is not null", 3),
    ] {
        let sql = format!("update {table} set {column} = {} where {kinds}", hours(count));
        database.execute(&sql).await;
    }
    figures::read(store, metrics).await.unwrap();
    let text = metrics.encode();
    for (name, of, condition) in [
        ("opledger_oldest_unknown_age_seconds", "unknown_since", "status = 'unknown'"),
        ("opledger_oldest_review_age_seconds", "review_since", "review_reason is not null"),
    ] {
        let expected = age(database, of, condition).await as f64;
        let got = value(&text, name).unwrap();
        assert!(expected > 3600.0, "{name}: {expected}");
        assert!((got - expected).abs() < 30.0, "{name}: {got}, by SQL {expected}");
    }
    assert!(value(&text, "opledger_figures_read_timestamp_seconds").unwrap() > 1.0e9);
}

/// What is finished is counted where it is written, and work that has gone is shown no more.
#[test]
fn finished_operations_are_counted_as_they_are_written() {
    on_each_store(|_, store| async move {
        let metrics = Metrics::new();
        let policies = opledger::policy_file::parse(POLICIES).expect("policies").0;
        let engine = opledger::engine::Engine::start(
            store.clone(),
            opledger::policy_file::Policies::of(policies),
            opledger::engine::Settings::default(),
            metrics.clone(),
        );
        let target = crate::script::OnStore { engine, store: play::ShiftedClock::on(store.clone()) };
        for (key, steps) in [
            ("a", "register+A ok:1:e1 ok:1:e1"),
            ("b", "register+A fail:1:E1"),
            ("c", "register/mail+A lost:1 saw-ok:e1"),
            ("d", "register+A"),
        ] {
            let mut player = Player::new(&target, key);
            for step in steps.split(' ') {
                assert!(!matches!(player.step(step).await, None | Some(Err(_))), "{key}: {step}");
            }
        }
        figures::read(&*store, &metrics).await.unwrap();
        let finished = family(&metrics.encode(), "opledger_operations_finished_total");
        let expected = [
            ("status=\"failed_final\",action_type=\"mail\"", 0),
            ("status=\"failed_final\",action_type=\"pay\"", 1),
            ("status=\"succeeded\",action_type=\"mail\"", 1),
            ("status=\"succeeded\",action_type=\"pay\"", 1),
        ];
        assert_eq!(finished, expected.map(|(labels, count)| (labels.to_owned(), count)).into());
        let held = family(&metrics.encode(), "opledger_operations");
        assert_eq!(held, [("status=\"in_progress\",action_type=\"pay\"".to_owned(), 1)].into());

        let mut player = Player::new(&target, "d");
        player.step("register+A").await;
        player.step("ok:1:e1").await;
        figures::read(&*store, &metrics).await.unwrap();
        assert_eq!(family(&metrics.encode(), "opledger_operations"), BTreeMap::new());
        target.engine.stop().await;
    });
}
