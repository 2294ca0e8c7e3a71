//! Goal: the last good file is in force, and every replica gets there by itself. Method: a temporary
//! folder and the real watching task; a test waits for outcomes, never for time.

use super::{Changes, LoadError, Look, Policies, Reloads};
use crate::policy_file::parse;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

const BOUND: Duration = Duration::from_secs(20);
const OFTEN: Duration = Duration::from_millis(5);
const HARDLY_EVER: Duration = Duration::from_secs(3600);
const BAD: &str = "tool_policy: {pay: {max_attempts: 0}}";

fn attempts(n: i32) -> String {
    format!("tool_policy: {{pay: {{max_attempts: {n}}}}}")
}

/// Replaces a file in one step: a reader never meets half of it.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("write");
    fs::rename(new, path).expect("replace");
}

fn in_force(policies: &Policies) -> i32 {
    policies.current().get("pay").max_attempts
}

/// A folder with a policy file, loaded.
fn loaded(text: &str) -> (TempDir, PathBuf, Policies) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("policy.yaml");
    fs::write(&path, text).expect("write");
    let policies = Policies::load(Some(path.clone())).expect("a good file");
    (folder, path, policies)
}

/// The watching task, and what ends it. Deaf to SIGHUP, which goes to every test of the process.
fn watching(policies: &Policies, every: Duration) -> (JoinHandle<()>, oneshot::Sender<()>) {
    let (end, ended) = oneshot::channel::<()>();
    let shutdown = async move { drop(ended.await) };
    (tokio::spawn(policies.clone().watch_with(every, None, shutdown)), end)
}

async fn until(policies: &Policies, wanted: impl FnMut(&Reloads) -> bool) -> Reloads {
    let mut reloads = policies.shared.reloads.subscribe();
    let seen = timeout(BOUND, reloads.wait_for(wanted)).await;
    *seen.unwrap_or_else(|_| panic!("only {:?}", policies.reloads())).expect("the sender lives")
}

#[test]
fn without_a_file_everything_is_built_in() {
    let policies = Policies::load(None).expect("no file, no fault");
    assert_eq!(policies.current().get("pay").max_attempts, 10);
    assert_eq!((policies.path(), policies.reloads()), (None, Reloads::default()));
}

#[test]
fn a_bad_file_at_start_is_refused_with_all_its_faults() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("policy.yaml");
    let refused = Policies::load(Some(path.clone())).err().expect("there is no file");
    assert!(matches!(refused, LoadError::Unreadable(..)), "{refused}");
    fs::write(&path, "tool_policy:\n  a: {x: 1}\n  b: {max_attempts: 0}\n").expect("write");
    let text = Policies::load(Some(path.clone())).err().expect("two faults").to_string();
    let path = path.display();
    assert!(text.contains(&format!("\n{path}:2:7: tool_policy.a.x: unknown key")), "{text}");
    assert!(text.contains(&format!("\n{path}:3:21: tool_policy.b.max_attempts: must be")), "{text}");
}

#[tokio::test]
async fn a_bad_file_never_replaces_a_good_one() {
    let (_folder, path, policies) = loaded(&attempts(1));
    let (task, end) = watching(&policies, OFTEN);

    put(&path, BAD);
    let seen = until(&policies, |reloads| reloads.failed > 0).await;
    assert_eq!(seen, Reloads { ok: 0, failed: 1, stale: true });
    assert_eq!(in_force(&policies), 1);

    put(&path, &attempts(2));
    let seen = until(&policies, |reloads| reloads.ok > 0).await;
    assert_eq!(seen, Reloads { ok: 1, failed: 1, stale: false });
    assert_eq!(in_force(&policies), 2);

    fs::remove_file(&path).expect("remove");
    let seen = until(&policies, |reloads| reloads.stale).await;
    assert_eq!(seen, Reloads { ok: 1, failed: 2, stale: true });
    assert_eq!(in_force(&policies), 2);

    // Back as it was: in force all along, and no longer stale.
    put(&path, &attempts(2));
    assert!(!until(&policies, |reloads| reloads.ok > 1).await.stale);

    end.send(()).expect("the task still runs");
    timeout(BOUND, task).await.expect("it ends at shutdown").expect("it did not panic");
}

#[tokio::test]
async fn a_content_is_taken_once() {
    let (_folder, path, policies) = loaded(&attempts(1));
    let routine = Look::Routine(Duration::ZERO);
    for (text, expected) in [
        (attempts(1), (0, 0)),
        (BAD.to_owned(), (0, 1)),
        (BAD.to_owned(), (0, 1)),
        (attempts(3), (1, 1)),
        (attempts(3), (1, 1)),
    ] {
        // Written anew each time: the time changes, the content need not.
        fs::write(&path, &text).expect("write");
        policies.look(routine).await;
        let Reloads { ok, failed, .. } = policies.reloads();
        assert_eq!((ok, failed), expected, "{text}");
    }
    // Who asks gets an answer, also to the same content.
    policies.look(Look::Asked).await;
    assert_eq!(policies.reloads().ok, 2);
}

#[tokio::test]
async fn a_swapped_symbolic_link_is_noticed() {
    // As the kubelet mounts a ConfigMap: policy.yaml → ..data/policy.yaml, ..data → a folder per version.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let version = |name: &str, text: &str| {
        let inside = folder.path().join(name);
        fs::create_dir(&inside).expect("create");
        fs::write(inside.join("policy.yaml"), text).expect("write");
        // Both versions claim the same time.
        let file = fs::File::options().write(true).open(inside.join("policy.yaml")).expect("open");
        file.set_modified(std::time::UNIX_EPOCH).expect("set the time");
    };
    let point = |target: &str| {
        let (link, new) = (folder.path().join("..data"), folder.path().join("..data_tmp"));
        symlink(target, &new).expect("link");
        fs::rename(new, link).expect("swap");
    };
    version("..1", &attempts(1));
    version("..2", &attempts(2));
    point("..1");
    let path = folder.path().join("policy.yaml");
    symlink(Path::new("..data/policy.yaml"), &path).expect("link");

    let policies = Policies::load(Some(path)).expect("a good file");
    let mut sets = policies.subscribe();
    let (_task, _end) = watching(&policies, OFTEN);
    assert_eq!(in_force(&policies), 1);
    point("..2");
    timeout(BOUND, sets.changed()).await.expect("noticed").expect("the sender lives");
    assert_eq!(in_force(&policies), 2);
}

#[tokio::test]
async fn sighup_reads_at_once() {
    let (_folder, path, policies) = loaded(&attempts(1));
    // Held here too, so that the signal can never end the test run.
    let _held = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).expect("a handler");
    let (end, ended) = oneshot::channel::<()>();
    let task = tokio::spawn(policies.clone().watch(HARDLY_EVER, async move { drop(ended.await) }));
    // On this single thread the task now runs until it waits, so it listens.
    tokio::task::yield_now().await;
    fs::write(&path, attempts(7)).expect("write");
    let sent = Command::new("sh").args(["-c", "kill -HUP $PPID"]).status().expect("sh");
    assert!(sent.success());
    until(&policies, |reloads| reloads.ok > 0).await;
    assert_eq!(in_force(&policies), 7);
    drop(end);
    timeout(BOUND, task).await.expect("it ends at shutdown").expect("it did not panic");
}

#[test]
fn changes_are_named() {
    let before =
        parse("tool_policy: {a: {}, b: {max_attempts: 2}, c: {}, e: {max_attempts: 1}}").expect("good").0;
    let now = parse(
        "tool_policy: {default: {max_attempts: 9}, b: {max_attempts: 3}, c: {}, d: {}, e: {max_attempts: 1}}",
    );
    let changes = Changes::between(&before, &now.expect("good").0);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    // `c` inherits from `default`, so it changed; `e` did not.
    let expected =
        Changes { added: names(&["d"]), removed: names(&["a"]), changed: names(&["default", "b", "c"]) };
    assert_eq!(changes, expected);
}
