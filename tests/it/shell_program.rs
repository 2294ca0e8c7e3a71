//! Goal: the program says what is wrong and exits as its help says; the admin pages tell the truth.
//!
//! Method: the built binary for exit codes and messages; the admin routes in this process.

use opledger::{
    admin,
    health::{self, Health, Readiness},
    shutdown,
    telemetry::Metrics,
};
use std::{
    io::Read,
    process::{Command, Output, Stdio},
};
use tower::ServiceExt;

fn opledger(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opledger"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OPLEDGER_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// One row a case: arguments, exit code, what is said.
#[test]
fn exit_codes_and_messages() {
    for (arguments, code, said) in [
        (&["--version"][..], 0, "opledger "),
        (&["--help"], 0, "Exit codes:"),
        (&["serve", "--help"], 0, "[env: OPLEDGER_DRAIN_TIMEOUT]"),
        (&[], 2, "Usage:"),
        (&["serve", "--no-such-flag"], 2, "--no-such-flag"),
        (&["serve", "--listen", "0.0.0.0:1"], 2, "--insecure"),
        (&["serve", "--admin-listen", "[::]:1"], 2, "--admin-listen [::]:1"),
        (&["serve", "--drain-timeout", "10"], 2, "is not a duration"),
        (&["migrate", "--database-url", "mysql://x"], 2, "sqlite:// or postgres://"),
        (&["get", "k", "--target", "http://127.0.0.1:1"], 4, "cannot reach http://127.0.0.1:1"),
        (&["list", "--server", "127.0.0.1:1"], 4, "cannot reach http://127.0.0.1:1"),
        (&["history", "k", "--json", "--target", "http://127.0.0.1:1"], 4, "\"code\":\"UNAVAILABLE\""),
        (&["get"], 2, "KEY"),
        (&["get", "k", "--id", "x"], 2, "cannot be used with"),
        (&["list", "--status", "done"], 2, "pending, in_progress"),
        (&["list", "--updated-after", "yesterday"], 2, "2026-01-31T08:00:00Z"),
        (&["reconcile", "k"], 2, "--succeeded"),
        (&["reconcile", "k", "--absent", "--succeeded"], 2, "cannot be used with"),
        (&["reconcile", "k", "--absent", "--external-id", "x"], 2, "cannot be used with"),
        (&["reconcile", "k", "--succeeded", "--check-after", "1s"], 2, "cannot be used with"),
        (&["reconcile", "k", "--absent", "--operator"], 2, "--reason"),
    ] {
        let output = opledger(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {said} is missing in {}", text(&output));
        assert!(!text(&output).contains('\u{1b}'), "{arguments:?}: no colours in a pipe");
    }
}

#[test]
fn all_faults_of_the_settings_come_at_once() {
    let output =
        opledger(&["serve", "--drain-timeout", "x", "--max-in-flight", "0", "--listen", "0.0.0.0:1"]);
    let lines = text(&output).lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(lines, 3, "{}", text(&output));
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_opledger"))
        .args(["serve", "--help"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!said.contains("panicked"), "{said}");
}

async fn page(health: &Health, path: &str) -> (u16, String, String) {
    let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
    let response = admin::routes(health.clone(), Metrics::new()).oneshot(request).await.unwrap();
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, kind, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn readiness_follows_and_liveness_does_not() {
    let health = Health::new();
    let (status, kind, body) = page(&health, "/readyz").await;
    assert_eq!((status, kind.as_str()), (503, "application/json"));
    assert_eq!(body, "{\"error\":\"not checked yet\",\"ready\":false,\"why\":\"store\"}\n");
    for (readiness, expected, why) in [
        (Readiness::Ready, 200, "\"ready\":true"),
        (Readiness::StoreAway("connection refused".into()), 503, "connection refused"),
        (Readiness::Draining, 503, "draining"),
    ] {
        health.set(readiness);
        let (status, _, body) = page(&health, "/readyz").await;
        assert_eq!(status, expected, "{body}");
        assert!(body.contains(why), "{body}");
        assert_eq!(page(&health, "/livez").await.0, 200);
    }
    let (status, kind, body) = page(&health, "/metrics").await;
    assert_eq!(status, 200);
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(body.ends_with("# EOF\n") && body.contains("opledger_build_info"));
}

#[tokio::test]
async fn the_shutdown_is_seen_by_all_who_wait_and_by_those_who_come_later() {
    let (trigger, shutdown) = shutdown::channel();
    let early = tokio::spawn(shutdown.clone().wait());
    assert!(!shutdown.begun());
    trigger.fire();
    early.await.unwrap();
    shutdown.clone().wait().await;
    assert!(shutdown.begun());
    _ = health::Health::default();
}

#[test]
fn the_demo_plays_its_story_to_the_end() {
    let output = opledger(&["demo", "--fast"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("One intention, one effect"), "{}", text(&output));

    let output = opledger(&["demo", "--json"]);
    let story: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(story["ok"], true, "{story:#}");
    assert_eq!(story["steps"].as_array().map(Vec::len), Some(9), "{story:#}");
}
