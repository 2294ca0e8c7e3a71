//! Goal: what is asked again and again reads an index and little else, whatever is stored. Method: a large
//! ledger in PostgreSQL, made by SQL; each statement as the store sends it, under the settings of its
//! connections, explained with what it really read.

use crate::harness::{Database, on_each_backend};
use opledger::{
    engine::{self, Engine},
    policy_file::{self, Policies},
    store::{self, Backend},
    telemetry::Metrics,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use std::time::{Duration, Instant};

/// 200,000 finished operations, each with its plan to be forgotten; and 1,000 with work that is due.
const LARGE: &str = "
insert into agent_operations (
    operation_id, version, created_at, updated_at, attempt_count, attempt_floor, check_count, conflict_count,
    outcome_conflict_count, two_step, dispatched, escalate_at,
    next_check_at, unknown_since, completed_at, retain_until, check_lease_count,
    namespace, operation_key, action_type, request_hash, hash_scheme, lease_secret, status, result_json
)
select
    lpad(to_hex(n), 32, '0')::uuid, 2, now(), now(), 1, 0, 0, 0, 0, false, true, now(),
    now(), now(), now() - interval '9 days',
    now(), 0, 'default', 'key-' || n, 'tool-' || n % 7, repeat('0', 64), 'jcs-sha256/1',
    decode(repeat('00', 16), 'hex'), case when n <= 200000 then 'succeeded' else 'unknown' end, repeat('x', 200)
from generate_series(1, 201000) as n;
insert into agent_operation_events (operation_id, sequence, version, event_at, attempt, kind, status, actor)
select lpad(to_hex(n), 32, '0')::uuid, n, 1, now(), 0, 'registered', 'pending', 'a'
from generate_series(1, 201000) as n;
insert into agent_operation_due (operation_id, due_at, kind, namespace, action_type, unknown_since)
select
    lpad(to_hex(n), 32, '0')::uuid, now() - n % 1000 * interval '1 second', k.kind, 'default', 'tool-' || n % 7,
    case when n > 200000 then now() end
from generate_series(1, 201000) as n
cross join lateral (
    select unnest(case when n <= 200000 then array['retain'] else array['sweep', 'check', 'review'] end) as kind
) as k;
";

/// A statement, what it takes, and how many pages it may read.
struct Case {
    name: &'static str,
    sql: &'static str,
    arguments: &'static str,
    pages: i64,
}

const CASES: [Case; 7] = [
    Case { name: "due sweep", sql: DUE, arguments: "'sweep', 256", pages: 1500 },
    Case { name: "due retain", sql: DUE, arguments: "'retain', 100", pages: 700 },
    Case { name: "poll_due", sql: POLL_DUE, arguments: "'default', 'check', null, 64", pages: 3000 },
    Case {
        name: "poll_due of a type",
        sql: POLL_DUE,
        arguments: "'default', 'check', array['tool-3'], 64",
        pages: 700,
    },
    Case { name: "poll_next", sql: POLL_NEXT, arguments: "'default', 'check', null", pages: 500 },
    Case { name: "figures", sql: FIGURES, arguments: "", pages: 700 },
    Case { name: "events", sql: EVENTS, arguments: "'default', 'key-77777', 0, 100", pages: 20 },
];

const DUE: &str = include_str!("../../src/store/postgres/due.sql");
const POLL_DUE: &str = include_str!("../../src/store/postgres/poll_due.sql");
const POLL_NEXT: &str = include_str!("../../src/store/postgres/poll_next.sql");
const FIGURES: &str = include_str!("../../src/store/postgres/figures.sql");
const EVENTS: &str = include_str!("../../src/store/postgres/events.sql");

/// As `for_reads` in src/store/postgres.rs, but for `enable_seqscan`: that an index serves must not depend on
/// the planner having no choice.
const SETTINGS: &str = "set plan_cache_mode = force_custom_plan; set enable_bitmapscan = off; \
                        set max_parallel_workers_per_gather = 0; set jit = off;";

#[test]
fn polls_sweeps_and_figures_stay_index_scans() {
    on_each_backend(|database| async move {
        if database.backend != Backend::Postgres {
            return;
        }
        store::migrate(&database.url).await.unwrap();
        database.execute(LARGE).await;
        for (statistics, seqscan) in [("no statistics", "off"), ("statistics", "on"), ("statistics", "off")] {
            if statistics == "statistics" {
                database.execute("vacuum analyze").await;
            }
            let mut connection = PgConnection::connect(&database.url).await.unwrap();
            connection.execute(SETTINGS).await.unwrap();
            let seqscan_setting = format!("set enable_seqscan = {seqscan}");
            connection.execute(AssertSqlSafe(seqscan_setting)).await.unwrap();
            for (number, case) in CASES.iter().enumerate() {
                let plan = explain(&mut connection, number, case).await;
                let what = format!("{} with {statistics}, enable_seqscan {seqscan}:\n{plan}", case.name);
                assert!(!plan.contains("Seq Scan"), "{what}");
                assert!(plan.contains("Index"), "{what}");
                let pages = pages(&plan);
                println!("{} with {statistics}, enable_seqscan {seqscan}: {pages} pages", case.name);
                assert!(pages <= case.pages, "{pages} pages; {what}");
            }
            connection.close().await.unwrap();
        }
        assert_writes_by_index(&database).await;
    });
}

/// Lets retention forget some of them, and asks the server how its tables and
/// indexes were read.
async fn assert_writes_by_index(database: &Database) {
    const RESET: &str = "select count(*) from (select pg_stat_reset()) as reset";
    database.number(RESET).await;
    let store = database.open().await;
    let policies = policy_file::parse("tool_policy:\n  default:\n    retention: { result_days: 1 }\n");
    let settings =
        engine::Settings { sweep_interval: Duration::from_secs(3600), ..engine::Settings::default() };
    // Both begin at once; then only retention goes on, until it is stopped.
    let engine = Engine::start(store.clone(), Policies::of(policies.unwrap().0), settings, Metrics::new());
    let forgotten = "select count(*) from agent_operation_events where kind = 'result_forgotten'";
    reaches(database, forgotten, 1000).await;
    engine.stop().await;
    drop((engine, store));
    // A server process reports what it read when its connection ends, if not before.
    let reported = "select coalesce(sum(n_tup_del), 0)::bigint from pg_stat_user_tables \
                    where relname = 'agent_operation_events'";
    reaches(database, reported, 1000).await;
    let forgotten = database.number(forgotten).await;
    let reads = "select coalesce(sum(idx_tup_read), 0)::bigint from pg_stat_user_indexes where relname = ";
    for (table, each) in
        [("agent_operation_events", 4), ("agent_operations", 10), ("agent_operation_due", 15)]
    {
        let read = database.number(&format!("{reads}'{table}'")).await;
        println!("{table}: {read} index entries read to forget {forgotten} results");
        // The sweep looks at the thousand other rows as well.
        assert!(
            read <= each * forgotten + 20_000,
            "{table}: {read} index entries for {forgotten} operations"
        );
    }
}

/// Waits until a query's number is at least this.
async fn reaches(database: &Database, sql: &str, enough: i64) {
    let begun = Instant::now();
    while database.number(sql).await < enough {
        assert!(begun.elapsed() < Duration::from_secs(60), "{sql} does not reach {enough}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn explain(connection: &mut PgConnection, number: usize, case: &Case) -> String {
    let prepare = format!("prepare case_{number} as {}", case.sql);
    connection.execute(AssertSqlSafe(prepare)).await.unwrap();
    let arguments = if case.arguments.is_empty() { String::new() } else { format!("({})", case.arguments) };
    let explain = format!("explain (analyze, buffers, timing off) execute case_{number} {arguments}");
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// The pages that the whole statement touched: the first line of its kind is the top node's.
fn pages(plan: &str) -> i64 {
    let line = plan.lines().find(|line| line.trim_start().starts_with("Buffers:")).unwrap_or_default();
    let number = |word: &str| -> i64 {
        let found = line.split(' ').find_map(|part| part.strip_prefix(word));
        found.and_then(|text| text.trim_end_matches(',').parse().ok()).unwrap_or(0)
    };
    number("hit=") + number("read=")
}
