"""The process dies just before a commit (exit code 17) or just after it and before the answer (18).

The caller sees a lost connection in both cases and repeats the same call after the restart. Either
way there is one operation, one attempt, and the answer that the first call would have had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

import grpc
import pytest
from harness import AFTER_COMMIT, BEFORE_COMMIT, assert_no_duplicates, rows_of
from ledger_client import (
    EXECUTE, IN_PROGRESS, PENDING, SUCCEEDED, UNKNOWN, USE_RESULT, Ledger, check_history, event_names, new_id, options,
    pb, success,
)  # fmt: skip

KEY = "payment:order-1"
FAILPOINT = {BEFORE_COMMIT: "store::before_commit=return", AFTER_COMMIT: "store::after_commit=return"}


@dataclass
class Case:
    """`prepare` runs undisturbed, then `call` crashes the server, then `call` is repeated and `check`ed."""

    call: Callable[[Ledger, dict], Any]
    check: Callable[[Any, bool], None]  # (the repeat's answer, whether the crash was after the commit)
    prepare: Callable[[Ledger], dict] = field(default=lambda ledger: {})
    row: tuple[str, ...] = ()
    events: list[str] = field(default_factory=list)


def registered(ledger: Ledger) -> dict:
    ledger.register(KEY)
    return {"claim_id": new_id()}


def claimed(ledger: Ledger, two_step: bool = False) -> dict:
    ledger.register(KEY)
    return {"token": ledger.claim(KEY, lease=60, two_step=two_step).lease.token}


def two_step_claimed(ledger: Ledger) -> dict:
    return claimed(ledger, two_step=True)


def unknown(ledger: Ledger) -> dict:
    held = claimed(ledger)
    ledger.mark_unknown(KEY, held["token"])
    return held


def check_register(answer, committed: bool) -> None:
    assert answer.created is not committed
    assert answer.operation.status == PENDING
    assert (answer.operation.version, answer.operation.attempt_count) == (1, 0)


def check_register_claim(answer, committed: bool) -> None:
    assert answer.created is not committed
    check_lease(answer)


def check_claim(answer, committed: bool) -> None:
    assert answer.granted
    check_lease(answer)


def check_lease(answer) -> None:
    assert answer.next_step == EXECUTE
    assert answer.lease.token and answer.lease.attempt == 1
    assert answer.operation.status == IN_PROGRESS
    assert answer.operation.attempt_count == 1


def check_complete(answer, committed: bool) -> None:
    assert answer.replayed is committed
    assert answer.next_step == USE_RESULT
    assert (answer.operation.status, answer.operation.external_id) == (SUCCEEDED, "pay_1")
    assert answer.operation.result_json == '{"ok": true}'


def check_unknown(answer, committed: bool) -> None:
    assert answer.replayed is committed
    assert answer.operation.status == UNKNOWN
    assert answer.operation.error_code == "timeout"


CASES = {
    "Register": Case(
        call=lambda ledger, held: ledger.register(KEY),
        check=check_register,
        row=(KEY, "pending", "0", ""),
        events=["registered"],
    ),
    "Register-with-claim": Case(
        prepare=lambda ledger: {"claim_id": new_id()},
        call=lambda ledger, held: ledger.register(KEY, claim=options(held["claim_id"], lease=60)),
        check=check_register_claim,
        row=(KEY, "in_progress", "1", ""),
        events=["registered", "claimed"],
    ),
    "Claim": Case(
        prepare=registered,
        call=lambda ledger, held: ledger.claim(KEY, held["claim_id"], lease=60),
        check=check_claim,
        row=(KEY, "in_progress", "1", ""),
        events=["registered", "claimed"],
    ),
    "Dispatch": Case(
        prepare=two_step_claimed,
        call=lambda ledger, held: ledger.dispatch(KEY, held["token"]),
        check=lambda answer, committed: None,
        row=(KEY, "in_progress", "1", ""),
        events=["registered", "claimed", "dispatched"],
    ),
    "Complete": Case(
        prepare=claimed,
        call=lambda ledger, held: ledger.succeed(KEY, held["token"], "pay_1", '{"ok": true}'),
        check=check_complete,
        row=(KEY, "succeeded", "1", "pay_1"),
        events=["registered", "claimed", "succeeded"],
    ),
    "MarkUnknown": Case(
        prepare=claimed,
        call=lambda ledger, held: ledger.mark_unknown(KEY, held["token"]),
        check=check_unknown,
        row=(KEY, "unknown", "1", ""),
        events=["registered", "claimed", "marked_unknown"],
    ),
    "Reconcile": Case(
        prepare=unknown,
        call=lambda ledger, held: ledger.reconcile(KEY, succeeded=success("pay_1", '{"ok": true}')),
        check=check_complete,
        row=(KEY, "succeeded", "1", "pay_1"),
        events=["registered", "claimed", "marked_unknown", "succeeded"],
    ),
}


@pytest.mark.parametrize("exit_code", [BEFORE_COMMIT, AFTER_COMMIT], ids=["before_commit", "after_commit"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_call_after_a_crash_finishes_the_same_operation(name, exit_code, store, server):
    case = CASES[name]
    held = case.prepare(server.client())
    server.stop()

    server.start(FAILPOINTS=FAILPOINT[exit_code])
    with pytest.raises(grpc.RpcError) as lost:
        case.call(server.client(), held)
    assert lost.value.code() == grpc.StatusCode.UNAVAILABLE
    assert server.wait_exit() == exit_code
    server.close_clients()

    committed = exit_code == AFTER_COMMIT
    server.start()
    client = server.client()
    answer = case.call(client, held)
    case.check(answer, committed)

    # And once more: nothing moves any further.
    again = case.call(client, held)
    if hasattr(answer, "lease"):
        assert (again.lease.token, again.lease.attempt) == (answer.lease.token, answer.lease.attempt)
    assert rows_of(store, KEY) == [case.row]
    assert_no_duplicates(store)
    assert event_names(check_history(client, KEY)) == case.events
    if name == "Dispatch":
        assert client.operation(KEY).dispatched


@pytest.mark.parametrize("exit_code", [BEFORE_COMMIT, AFTER_COMMIT], ids=["before_commit", "after_commit"])
def test_a_crash_of_one_batch_leaves_no_half_of_it(exit_code, store, server):
    """Many callers, one crash: each operation is wholly there or not at all, with all its events."""
    keys = [f"payment:{n}" for n in range(30)]
    server.stop()
    server.start(FAILPOINTS=FAILPOINT[exit_code])
    client = server.client()
    claims = {key: options(new_id(), lease=60) for key in keys}
    calls = [
        client.stub.Register.future(
            pb.RegisterRequest(operation_key=k, action_type="create_payment", payload_json="{}", claim=claims[k]),
            timeout=10,
        )
        for k in keys
    ]
    assert server.wait_exit() == exit_code
    assert {call.code() for call in calls} == {grpc.StatusCode.UNAVAILABLE}
    server.close_clients()
    server.start()
    client = server.client()
    survived = store.query("SELECT operation_key, status, attempt_count FROM agent_operations ORDER BY 1")
    assert (exit_code == AFTER_COMMIT) == bool(survived), "before: nothing is there; after: something is"
    assert all(row[1:] == ("in_progress", "1") for row in survived)
    there = {row[0] for row in survived}
    for key in keys:
        answer = client.register(key, "{}", claim=claims[key])
        assert answer.created is (key not in there)
        assert answer.lease.attempt == 1
        assert event_names(check_history(client, key)) == ["registered", "claimed"]
    assert_no_duplicates(store)
