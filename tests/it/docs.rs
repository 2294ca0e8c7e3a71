//! The pages under `docs/` say what the program does: tables are read from the page and compared with the
//! rules, the metrics and the proto file themselves. A failure prints the table as it should be.

use crate::script::{Core, POLICIES, Player, Target, show};
use opledger::{
    ledger::{Operation, Status},
    policy_file,
    proto::ErrorReason,
    telemetry::{Method, Metrics, WorkFigures},
};
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};
use tonic::Code;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the table whose header begins with this cell, without its header.
fn table(page: &str, first_header: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    page.lines()
        .skip_while(|line| !line.starts_with(&format!("| {first_header} |")))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(cells)
        .collect()
}

/// One row of the state table: how its command is played, and how its histories differ from the usual ones.
struct Row {
    label: &'static str,
    step: &'static str,
    /// The action type: which policy of the scripts holds.
    action: &'static str,
    /// How the first attempt is claimed.
    claim: &'static str,
    /// Seconds between the claim and the step where the lease is over, and since it became unknown.
    waits: (u32, u32),
}

const ROWS: &[Row] = &[
    row("Register, same request", "register"),
    row("Register, other request", "register#2"),
    row("Register with a claim", "register+B"),
    row("Claim", "claim:B"),
    Row { action: "same-key", ..row("Claim, `retry_same_key`", "claim:B") },
    Row { action: "ask", ..row("Claim, `require_human_review`", "claim:B") },
    row("Claim, its claim_id again", "claim:A"),
    Row { claim: "claim2:A", ..row("Dispatch (two-step)", "dispatch:1") },
    row("Renew", "renew:1"),
    row("Complete succeeded", "ok:1:e1"),
    row("Complete succeeded, other external_id", "ok:1:e2"),
    row("Complete failed_final", "fail:1:E1"),
    row("Complete failed_final, other error_code", "fail:1:E2"),
    row("MarkUnknown", "lost:1"),
    row("Reconcile succeeded", "saw-ok:e1"),
    row("Reconcile succeeded, other external_id", "saw-ok:e2"),
    row("Reconcile failed", "saw-failed:E1"),
    row("Reconcile failed, by the holder", "saw-failed:E1@1"),
    Row { waits: (91, 61), ..row("Reconcile absent, believed", "saw-absent") },
    row("Reconcile absent, too early", "saw-absent"),
    Row { action: "mail", waits: (91, 61), ..row("Reconcile absent, `lookup: eventual`", "saw-absent") },
    row("Reconcile absent, by the holder", "saw-absent@1"),
    row("Reconcile indeterminate", "saw-nothing"),
    Row { waits: (1000, 901), ..row("Reconcile indeterminate, unresolved", "saw-nothing") },
    row("Reconcile indeterminate, by the holder", "saw-nothing@1"),
    row("Reconcile absent, by a person", "op-absent"),
    row("Nothing but time", "observe"),
    Row { waits: (1000, 901), ..row("Nothing but time, unresolved", "observe") },
    Row { claim: "claim2:A", ..row("Nothing but time, two-step", "observe") },
];

const fn row(label: &'static str, step: &'static str) -> Row {
    Row { label, step, action: "pay", claim: "claim:A", waits: (31, 0) }
}

impl Row {
    /// The histories of the columns, in their order on the page.
    fn histories(&self) -> [String; 7] {
        let Self { action, claim, .. } = self;
        let (over, unknown) = self.waits;
        let claimed = format!("register/{action} {claim}");
        [
            String::new(),
            format!("{claimed} saw-absent@1"),
            claimed.clone(),
            format!("{claimed} wait:{over}"),
            format!("{claimed} lost:1 wait:{unknown}"),
            format!("{claimed} ok:1:e1"),
            format!("{claimed} fail:1:E1"),
        ]
    }

    /// The step, for the action type of the history.
    fn step(&self) -> String {
        let other = self.step.strip_prefix("register").map(|rest| format!("register/{}{rest}", self.action));
        other.unwrap_or_else(|| self.step.to_owned())
    }
}

fn status(record: Option<&Operation>) -> Option<Status> {
    record.map(|operation| operation.state.status)
}

fn name(status: Option<Status>) -> &'static str {
    status.map_or("[*]", Status::as_str)
}

/// Plays one cell on the bare rules; gives back its text, and the status changes that it made.
async fn play(core: &Core, key: &str, history: &str, step: &str) -> (String, Vec<(String, String)>) {
    let mut player = Player::new(core, key);
    for step in history.split_whitespace() {
        player.step(step).await;
    }
    let before = core.record(&player.key).await;
    let told = core.events(&player.key).await.len();
    let answer = player.step(step).await.expect("a command");
    let after = core.record(&player.key).await;

    let shown = show(&answer);
    let mut words: Vec<&str> = shown.split(' ').collect();
    words.retain(|word| !word.starts_with("lease1") && !word.starts_with("lease2") && *word != "applied");
    let mut text = match words[..] {
        ["created", step] => format!("{step}, created"),
        ["replayed", step] => format!("{step}, replayed"),
        ["CONFLICT"] => "REQUEST_HASH_MISMATCH".to_owned(),
        ["NOT_FOUND"] => "OPERATION_NOT_FOUND".to_owned(),
        [word] => word.to_owned(),
        _ => panic!("an answer of other words: {shown}"),
    };
    if status(before.as_ref()) != status(after.as_ref()) {
        text.push_str(&format!(" → {}", name(status(after.as_ref()))));
    }
    let review = |record: &Option<Operation>| record.as_ref().is_some_and(Operation::review_required);
    if review(&after) && !review(&before) {
        text.push_str(" + review");
    }

    let mut edges = Vec::new();
    let mut from = name(status(before.as_ref()));
    for event in core.events(&player.key).await.iter().skip(told) {
        let to = event.status.as_str();
        if to != from {
            edges.push((from.to_owned(), to.to_owned()));
        }
        from = to;
    }
    (text, edges)
}

#[tokio::test]
async fn the_state_table_is_what_the_rules_do() {
    let (policies, _) = policy_file::parse(POLICIES).expect("policies");
    let core = Core::new(Arc::new(policies));
    let mut expected = Vec::new();
    let mut edges = BTreeSet::new();
    for (number, row) in ROWS.iter().enumerate() {
        let mut cells = vec![row.label.to_owned()];
        for (column, history) in row.histories().iter().enumerate() {
            let key = format!("{number}-{column}");
            let (text, changes) = play(&core, &key, history, &row.step()).await;
            cells.push(text);
            edges.extend(changes);
        }
        expected.push(cells);
    }
    let page = page("state-machine.md");
    if table(&page, "command") != expected {
        let shown: Vec<String> = expected.iter().map(|cells| format!("| {} |", cells.join(" | "))).collect();
        panic!("the table of docs/state-machine.md should be\n\n{}\n", shown.join("\n"));
    }

    // The graph has exactly the changes of status that were played.
    let drawn: BTreeSet<(String, String)> = page
        .lines()
        .filter_map(|line| line.trim().split_once(" --> "))
        .map(|(from, rest)| {
            let to = rest.split_once(':').map_or(rest, |(to, _)| to);
            (from.to_owned(), to.trim().to_owned())
        })
        .filter(|(_, to)| to != "[*]")
        .collect();
    assert_eq!(drawn, edges, "the arrows of docs/state-machine.md, and those of the rules");
}

#[test]
fn every_metric_is_in_the_table() {
    let metrics = Metrics::new();
    // A family without a member is not shown.
    metrics.call_ended(Method::Get, Code::Ok, Duration::ZERO);
    metrics.operation_finished(&"pay".into(), true);
    metrics.show_work(&WorkFigures {
        operations: [(("pay".to_owned(), "unknown"), 1)].into(),
        reviews: [("pay".to_owned(), 1)].into(),
        ..WorkFigures::default()
    });
    let text = metrics.encode();
    let served: BTreeSet<(String, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| {
            let end = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            (format!("`{name}{end}`"), kind.to_owned())
        })
        .collect();
    let told: BTreeSet<(String, String)> = table(&page("operating.md"), "metric")
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    assert_eq!(told, served, "the metrics of docs/operating.md, and those served");
}

#[test]
fn every_reason_is_in_the_table() {
    let known: Vec<String> = (1..)
        .map_while(|number| ErrorReason::try_from(number).ok())
        .map(|reason| format!("`{}`", reason.as_str_name().trim_start_matches("ERROR_REASON_")))
        .collect();
    let told: Vec<String> =
        table(&page("errors.md"), "reason").into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(told, known, "the reasons of docs/errors.md, and those of error_reason.proto, in order");
}
