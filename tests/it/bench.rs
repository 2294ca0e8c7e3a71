//! Goal: what `opledger bench` says it did is what the database holds, and its exit code tells of failures.
//!
//! Method: the built binary as server and as load generator, on each back end; then SQL past both.

use crate::harness::{Database, on_each_backend};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

struct Server {
    process: Child,
    target: String,
}

impl Server {
    /// On a free port, which its first line names.
    fn start(database: &Database) -> Self {
        let mut process = opledger()
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "off",
                "--database-url",
                &database.url,
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let first = lines.next().expect("it says where it listens").expect("text");
        let (_, address) = first.rsplit_once("grpc://").expect("a gRPC address");
        let target = format!("http://{address}");
        // Its other lines must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, target }
    }

    /// Exit code, and the last line of the output as JSON.
    fn bench(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = opledger()
            .args(["bench", "--target", &self.target, "--json"])
            .args(arguments)
            .output()
            .expect("the binary runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let last = text.lines().last().expect("a line");
        (output.status.code(), serde_json::from_str(last).expect("one JSON object"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn opledger() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opledger"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OPLEDGER_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

#[test]
fn the_ops_reported_are_the_events_in_the_database() {
    on_each_backend(|database| async move {
        let server = Server::start(&database);
        for (namespace, mix, rate) in
            [("a", "lifecycle", "0"), ("b", "short", "0"), ("c", "register", "0"), ("d", "lifecycle", "300")]
        {
            let arguments = ["--mix", mix, "--namespace", namespace, "--rate", rate, "--in-flight", "8"];
            let times = ["--duration", "500ms", "--warmup", "100ms"];
            let (code, report) = server.bench(&[&arguments[..], &times].concat());
            assert_eq!(code, Some(0), "{mix}: {report}");
            assert_eq!((&report["errors"], &report["mix"]), (&0.into(), &mix.into()), "{report}");
            assert!(
                report["ops"].as_i64() > Some(0) && report["ops"].as_i64() <= report["ops_total"].as_i64()
            );
            for field in ["ops_per_s", "p50_ms", "p90_ms", "p99_ms", "max_ms"] {
                assert!(report[field].as_f64() > Some(0.0), "{field}: {report}");
            }
            let joined = format!(
                "from agent_operation_events e join agent_operations o on o.operation_id = e.operation_id \
                 where o.namespace = '{namespace}'"
            );
            let events = database.number(&format!("select count(*) {joined}")).await;
            assert_eq!(report["ops_total"].as_i64(), Some(events), "{mix}: {report}");
            let (status, version) = if mix == "register" { ("pending", 1) } else { ("succeeded", 3) };
            let others = format!(
                "select count(*) from agent_operations where namespace = '{namespace}' \
                 and not (status = '{status}' and version = {version})"
            );
            assert_eq!(database.number(&others).await, 0, "{mix}: nothing is left half way");
        }
        let due = database.number("select count(*) from agent_operation_due").await;
        assert_eq!(due, 0, "no lease is left behind");
        drop(server);
    });
}

#[test]
fn mixes_on_finished_operations_and_failures() {
    on_each_backend(|database| async move {
        let server = Server::start(&database);
        let short = ["--duration", "300ms", "--warmup", "100ms", "--in-flight", "4"];
        for mix in ["claim-complete", "replay", "get"] {
            let (code, report) = server.bench(&[&["--mix", mix][..], &short].concat());
            assert_eq!((code, &report["errors"]), (Some(0), &0.into()), "{mix}: {report}");
            assert!(report["calls"].as_i64() > Some(0), "{mix}: {report}");
        }
        // More than the policy lets a payload be.
        let (code, report) = server.bench(&[&["--payload-bytes", "300000"][..], &short].concat());
        assert_eq!(code, Some(1), "{report}");
        assert_eq!(report["ops_total"], 0);
        assert_eq!(report["errors_by_code"]["INVALID_ARGUMENT"], report["errors"], "{report}");
        drop(server);
    });
}
