"""Poll: unknown operations reach one checker at a time, stored requests one deliverer at a time."""

from __future__ import annotations

import threading
import time

import pytest
from harness import wait_until
from ledger_client import Ledger, failure, new_id, pb, refused, seconds, success

POLICY = """
tool_policy:
  default:
    lease: {default_seconds: 2}
    reconcile: {initial_delay_seconds: 0.1, multiplier: 1, max_interval_seconds: 0.1, jitter: 0}
  sure:
    provider: {lookup: authoritative, absence_settle_seconds: 1}
  tried:
    max_attempts: 2
  blind:
    provider: {lookup: none}
    unknown_after_seconds: 2
"""


@pytest.fixture
def ledger(start, store):
    with Ledger(start(store, policy=POLICY).address) as client:
        yield client


def poll(ledger: Ledger, purpose: str, *, count=10, wait=0.0, poll_id=None, lease=None, **fields):
    answer = ledger.call(
        "Poll",
        timeout=wait + 10,
        purpose=getattr(pb, f"PURPOSE_{purpose}"),
        max_operations=count,
        wait=seconds(wait),
        poll_id=poll_id or new_id(),
        lease_duration=seconds(lease),
        worker_id="worker",
        **fields,
    )
    return list(answer.items)


def unknown(ledger: Ledger, key: str, action: str = "pay") -> None:
    ledger.register(key, action=action)
    token = ledger.claim(key).lease.token
    ledger.mark_unknown(key, token)


def keys(items) -> list[str]:
    return [item.operation.operation_key for item in items]


def test_a_check_goes_to_one_checker_and_its_report_settles_it(ledger):
    unknown(ledger, "a")
    first = poll(ledger, "RECONCILE", wait=5)
    assert keys(first) == ["a"] and first[0].next_step == pb.NEXT_STEP_RECONCILE
    assert first[0].operation.lease_holder == "worker" and first[0].lease.duration.seconds >= 1
    assert poll(ledger, "RECONCILE") == [], "another checker gets nothing meanwhile"
    answer = ledger.reconcile("a", succeeded=success("pay_1"), lease_token=first[0].lease.token)
    assert answer.applied and answer.operation.external_id == "pay_1"
    assert poll(ledger, "RECONCILE", wait=0.5) == []


def test_a_repeated_poll_gets_the_same_leases(ledger):
    for key in "abc":
        unknown(ledger, key)
    poll_id = new_id()
    wait_until(lambda: len(poll(ledger, "RECONCILE", poll_id=poll_id, lease=30)) > 0, "something due")
    first = poll(ledger, "RECONCILE", poll_id=poll_id, lease=30)
    again = poll(ledger, "RECONCILE", poll_id=poll_id, lease=30)
    assert {(i.operation.operation_key, i.lease.token) for i in first} == {
        (i.operation.operation_key, i.lease.token) for i in again
    }


def test_a_dead_checkers_operation_is_due_again_and_its_late_report_is_told_so(ledger):
    unknown(ledger, "a")
    dead = poll(ledger, "RECONCILE", wait=5, lease=0.5)
    heir = poll(ledger, "RECONCILE", wait=5)
    assert keys(heir) == ["a"] and heir[0].lease.token != dead[0].lease.token
    with refused("FAILED_PRECONDITION", "LEASE_LOST"):
        ledger.reconcile("a", absent=pb.Absent(), lease_token=dead[0].lease.token)
    ledger.renew("a", heir[0].lease.token, lease=5)


def test_a_waiting_poll_wakes_as_soon_as_something_is_due(ledger):
    got = []
    waiting = threading.Thread(target=lambda: got.append((poll(ledger, "RECONCILE", wait=20), time.monotonic())))
    waiting.start()
    unknown(ledger, "a")
    marked = time.monotonic()
    waiting.join(15)
    assert keys(got[0][0]) == ["a"]
    assert got[0][1] - marked < 1.5, "0.1 s until it is due, and no long sleep"


def test_a_flooded_action_type_starves_nobody(ledger):
    for number in range(30):
        unknown(ledger, f"flood/{number}", "flood")
    unknown(ledger, "rare", "rare")
    wait_until(lambda: ledger.operation("rare").next_check_time.ToSeconds() <= time.time() - 1, "the check of rare")
    assert "rare" in keys(poll(ledger, "RECONCILE", count=4))
    assert set(keys(poll(ledger, "RECONCILE", count=4, action_types=["rare", "none"]))) <= {"rare"}


def test_a_delivery_is_two_step_and_comes_back_unless_dispatched(ledger):
    ledger.register("mail", {"to": "x"}, "tried", store_payload=True)
    ledger.register("not-stored", action="tried")
    first = poll(ledger, "EXECUTE", lease=0.5)
    assert keys(first) == ["mail"] and first[0].operation.payload_json == '{"to": "x"}'
    assert not first[0].operation.dispatched
    # The deliverer dies before Dispatch: pending again, never unknown.
    second = poll(ledger, "EXECUTE", wait=10, lease=5)
    assert keys(second) == ["mail"] and second[0].lease.attempt == 2
    with refused("FAILED_PRECONDITION", "LEASE_LOST"):
        ledger.dispatch("mail", first[0].lease.token)
    ledger.dispatch("mail", second[0].lease.token)
    assert ledger.succeed("mail", second[0].lease.token, "m_1").operation.external_id == "m_1"
    assert poll(ledger, "EXECUTE") == []


def test_attempts_run_out_and_a_person_must_look(ledger):
    ledger.register("mail", action="tried", store_payload=True)
    for _ in range(2):
        taken = poll(ledger, "EXECUTE", wait=10)
        ledger.reconcile("mail", absent=pb.Absent(), lease_token=taken[0].lease.token)
    assert poll(ledger, "EXECUTE", wait=1) == []
    assert ledger.operation("mail").review_required


def test_told_too_early_then_found(ledger):
    """The provider applies late: an absence that is observed too early releases nothing."""
    unknown(ledger, "a", "sure")
    taken = poll(ledger, "RECONCILE", wait=5)
    early = ledger.reconcile("a", absent=pb.Absent(), lease_token=taken[0].lease.token)
    assert not early.applied and early.next_step == pb.NEXT_STEP_RECONCILE
    later = poll(ledger, "RECONCILE", wait=5)
    assert ledger.reconcile("a", succeeded=success("pay_1"), lease_token=later[0].lease.token).applied
    assert ledger.operation("a").attempt_count == 1


def test_truly_absent_is_released_after_the_settle_window(ledger):
    unknown(ledger, "a", "sure")
    released = False
    while not released:
        taken = poll(ledger, "RECONCILE", wait=5)
        assert taken, "the operation must stay due until it is settled"
        released = ledger.reconcile("a", absent=pb.Absent(), lease_token=taken[0].lease.token).applied
    answer = ledger.claim("a")
    assert answer.granted and answer.lease.attempt == 2


def test_four_checkers_settle_everything_once(ledger):
    total = 60
    for number in range(total):
        unknown(ledger, f"k/{number:03}")
    asked, lock = [], threading.Lock()

    def checker(seed: int) -> None:
        with Ledger(ledger.address) as mine:
            while True:
                items = poll(mine, "RECONCILE", count=7, wait=3, lease=1)
                if not items:
                    return
                for at, item in enumerate(items):
                    if (at + seed) % 5 == 0:
                        continue  # died: its lease ends, and the check is due again
                    key = item.operation.operation_key
                    answer = mine.reconcile(key, succeeded=success(key), lease_token=item.lease.token)
                    with lock:
                        asked.append((key, answer.replayed))

    workers = [threading.Thread(target=checker, args=(seed,)) for seed in range(4)]
    [worker.start() for worker in workers]
    [worker.join(60) for worker in workers]
    assert sorted(key for key, replayed in asked if not replayed) == [f"k/{n:03}" for n in range(total)]


def test_a_provider_that_cannot_be_asked_ends_with_a_person(ledger):
    unknown(ledger, "a", "blind")
    taken = poll(ledger, "RECONCILE", wait=5)
    answer = ledger.reconcile("a", absent=pb.Absent(), lease_token=taken[0].lease.token)
    assert not answer.applied, "where nothing can be looked up, an absence releases nothing"
    wait_until(lambda: ledger.operation("a").review_required, "the review")
    assert not ledger.claim("a").granted
    version = ledger.operation("a").version
    with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
        ledger.call("Reconcile", operation_key="a", failed=failure("E"), operator_decision=True)
    decided = ledger.reconcile(
        "a", "the bank's statement has it", succeeded=success("pay_1"), operator_decision=True, if_version=version
    )
    assert decided.applied and not decided.operation.review_required
    assert ledger.operation("a").external_id == "pay_1" and ledger.operation("a").attempt_count == 1
    last = ledger.events("a")[-1]
    assert "the bank's statement has it" in last.detail_json and '"operator_decision":true' in last.detail_json
