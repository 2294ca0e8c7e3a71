"""The policy file: the running server follows it; a bad one never replaces a good one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import grpc
import pytest
from harness import POLICY, opledger, wait_until
from ledger_client import new_id

SEED = """\
tool_policy:
  create_payment:
    operation_key: required
    retry:
      reuse_operation_key: true
      on_timeout: reconcile_before_retry
    terminal_states:
      - succeeded
      - failed_final
    unknown_after_seconds: 900
    on_unresolved: require_human_review

  send_email:
    operation_key: required
    retry:
      reuse_operation_key: true
      on_timeout: reconcile_before_retry
"""


def with_limit(size: int) -> str:
    """The test policy, where `small` takes payloads of at most this many bytes."""
    return POLICY.replace("max_bytes: 200", f"max_bytes: {size}")


def takes(ledger, size: int) -> bool:
    """Whether `small` takes a payload of this many bytes."""
    try:
        ledger.register(new_id(), '"' + "x" * (size - 2) + '"', action="small")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        return False
    return True


def replace(path: Path, text: str) -> None:
    """As an editor or Kubernetes does it: a new file under the old name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


@pytest.fixture
def sqlite_server(start, folder):
    from harness import SqliteStore

    where = folder / f"policy-{new_id()[:8]}"
    where.mkdir()
    return start(SqliteStore(where))


def test_the_example_of_the_contract_loads_as_it_is(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(SEED)
    done = opledger("policy", "check", str(path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("write", [replace, Path.write_text], ids=["replaced", "written in place"])
def test_it_follows_the_file(sqlite_server, write):
    ledger = sqlite_server.client()
    assert takes(ledger, 200) and not takes(ledger, 201)
    write(sqlite_server.policy, with_limit(300))
    wait_until(lambda: takes(ledger, 300), "the new policy")
    assert not takes(ledger, 301)


def test_it_reads_the_file_again_on_sighup(sqlite_server):
    ledger = sqlite_server.client()
    sqlite_server.policy.write_text(with_limit(250))
    sqlite_server.signal(signal.SIGHUP)
    wait_until(lambda: takes(ledger, 250), "the new policy", limit=5)
    assert sqlite_server.alive()


@pytest.mark.parametrize(
    "bad",
    [
        POLICY.replace("max_bytes: 200", "max_bytes: many"),
        POLICY.replace("tool_policy:", "tool_policies:"),
        POLICY + "  create_refund:\n    unknown_key: 1\n",
        "tool_policy: [",
        "",
        None,
    ],
    ids=["bad value", "unknown top key", "unknown key", "no YAML", "empty", "gone"],
)
def test_a_bad_file_keeps_the_good_policy(sqlite_server, bad):
    ledger = sqlite_server.client()

    def refused_reloads() -> float:
        lines = sqlite_server.http("/metrics")[1].splitlines()
        return sum(float(x.split()[-1]) for x in lines if x.startswith("opledger_policy_reloads") and "refused" in x)

    before = refused_reloads()
    if bad is None:
        sqlite_server.policy.unlink()
    else:
        replace(sqlite_server.policy, bad)
    sqlite_server.signal(signal.SIGHUP)
    wait_until(lambda: refused_reloads() > before, "the refusal", limit=10)
    assert takes(ledger, 200) and not takes(ledger, 201)
    replace(sqlite_server.policy, with_limit(300))
    sqlite_server.signal(signal.SIGHUP)
    wait_until(lambda: takes(ledger, 300), "the repaired policy")


def test_a_bad_file_at_the_start_is_refused_with_line_and_column(start, folder):
    from harness import SqliteStore

    where = folder / f"policy-{new_id()[:8]}"
    where.mkdir()
    server = start(SqliteStore(where), wait=False, policy="tool_policy:\n  a:\n    lease:\n      max_seconds: soon\n")
    assert server.wait_exit(15) not in (0, 101)
    assert ":4:20" in server.log_text() or "line 4" in server.log_text()


@pytest.mark.parametrize(
    "text,line",
    [
        ("tool_policy:\n  a:\n    retries: 3\n", 3),
        ("tool_policy:\n  a:\n    retry:\n      on_timeout: retry_always\n", 4),
        ("tool_policy:\n  a:\n    operation_key: optional\n", 3),
        ("tool_policy:\n  a:\n    retry:\n      reuse_operation_key: false\n", 4),
        ("tool_policy:\n  a:\n    unknown_after_seconds: -5\n", 3),
        ("tool_policy:\n  a:\n    max_attempts: 1\n    max_attempts: 2\n", 4),
        ("tool_policy:\n  a:\n    retry:\n      on_timeout: retry_same_key\n", 4),
    ],
)
def test_check_explains_each_fault_with_its_place(tmp_path, text, line):
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    done = opledger("policy", "check", str(path))
    said = (done.stdout + done.stderr).decode()
    assert done.returncode not in (0, 101)
    assert f":{line}:" in said or f"line {line}" in said, said


def test_check_explains_all_faults_at_once(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("tool_policy:\n  a:\n    one: 1\n  b:\n    two: 2\n")
    said = opledger("policy", "check", str(path))
    text = (said.stdout + said.stderr).decode()
    assert "one" in text and "two" in text


def test_show_prints_what_holds_with_defaults(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(SEED)
    done = opledger("policy", "show", "create_payment", "--policy", str(path))
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "reconcile_before_retry" in text and "900" in text and "max_attempts" in text
    other = opledger("policy", "show", "no_entry_for_this", "--policy", str(path))
    assert other.returncode == 0 and "max_attempts" in other.stdout.decode(), "the default holds"


def test_unresolved_operations_go_to_a_person(start, folder):
    from harness import SqliteStore
    from ledger_client import REVIEW, UNKNOWN, check_history, event_names, options

    where = folder / f"policy-{new_id()[:8]}"
    where.mkdir()
    text = "tool_policy:\n  quick:\n    unknown_after_seconds: 2\n    lease:\n      default_seconds: 1\n"
    ledger = start(SqliteStore(where), policy=text).client()
    lease = ledger.register("k", action="quick", claim=options(lease=1)).lease
    ledger.mark_unknown("k", lease.token)
    wait_until(lambda: ledger.operation("k").review_required, "the review flag", limit=15)
    assert ledger.operation("k").status == UNKNOWN, "review is a flag, not a status"
    assert ledger.claim("k").next_step == REVIEW
    assert "escalated" in event_names(check_history(ledger, "k"))
