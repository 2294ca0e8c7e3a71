"""Leases that lapse: never two live ones, attempts only grow, and late evidence is kept."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

import grpc
import pytest
from harness import assert_no_duplicates, seeded, wait_until
from ledger_client import (
    CLAIM, EXECUTE, IN_PROGRESS, PENDING, RECONCILE, REVIEW, SUCCEEDED, UNKNOWN, USE_RESULT, WAIT, Ledger, Refusal,
    check_history, event_names, new_id, options, pb, refused, success, when,
)  # fmt: skip

SHORT = 1.0  # seconds


def lapsed(ledger: Ledger, key: str):
    """Waits until the lease of `key` is over; nobody has said a word."""
    return wait_until(lambda: ledger.operation(key).status != IN_PROGRESS, f"the lease of {key} to end")


def test_a_lapsed_lease_means_unknown_and_not_failed(ledger, key):
    ledger.register(key, claim=options(lease=SHORT))
    assert ledger.claim(key).next_step == WAIT
    lapsed(ledger, key)
    operation = ledger.operation(key)
    assert operation.status == UNKNOWN and operation.HasField("unknown_since_time")
    answer = ledger.claim(key)
    assert not answer.granted and answer.next_step == RECONCILE
    assert event_names(check_history(ledger, key)) == ["registered", "claimed", "lease_expired"]


def test_a_lapse_is_noticed_by_the_next_claim(ledger, key):
    first = ledger.register(key, action="same_key", claim=options(lease=SHORT)).lease
    second = wait_until(lambda: got if (got := ledger.claim(key, lease=60)).granted else None, "the second grant")
    assert (first.attempt, second.lease.attempt) == (1, 2)
    assert second.lease.token != first.token
    with refused("FAILED_PRECONDITION", "LEASE_LOST"):
        ledger.renew(key, first.token)
    assert event_names(check_history(ledger, key)) == ["registered", "claimed", "lease_expired", "claimed"]


def test_the_lease_is_counted_as_a_duration_and_ends_on_the_servers_clock(ledger, key):
    lease = ledger.register(key, claim=options(lease=60)).lease
    assert 59 < lease.duration.ToNanoseconds() / 1e9 <= 60
    renewed = ledger.renew(key, lease.token, lease=90).lease
    assert renewed.token == lease.token and renewed.attempt == 1
    assert when(renewed.expire_time) > when(lease.expire_time) + 25
    assert when(ledger.operation(key).lease_expire_time) == when(renewed.expire_time)
    assert ledger.operation(key).lease_holder == "test"


def test_renewing_keeps_it_longer_than_its_first_duration(ledger, key):
    lease = ledger.register(key, claim=options(lease=SHORT)).lease
    first_end = when(lease.expire_time)
    while when(ledger.renew(key, lease.token, lease=SHORT).lease.expire_time) < first_end + 2 * SHORT:
        assert ledger.operation(key).status == IN_PROGRESS
        assert ledger.claim(key).next_step == WAIT
        time.sleep(SHORT / 4)  # the heartbeat's pace
    assert ledger.operation(key).attempt_count == 1


def test_a_late_success_of_an_old_attempt_is_kept(ledger, key):
    first = ledger.register(key, action="same_key", claim=options(lease=SHORT)).lease
    second = wait_until(lambda: got if (got := ledger.claim(key, lease=60)).granted else None, "the second grant").lease
    late = ledger.succeed(key, first.token, "pay_1")
    assert late.operation.status == SUCCEEDED and late.operation.external_id == "pay_1"
    assert late.next_step == USE_RESULT

    # The second attempt did it too: two effects. That is reported, kept, and a person must look.
    with refused("FAILED_PRECONDITION", "OUTCOME_CONFLICT") as refusal:
        ledger.succeed(key, second.token, "pay_2")
    assert refusal.preconditions
    operation = ledger.operation(key)
    assert (operation.status, operation.external_id) == (SUCCEEDED, "pay_1"), "the recorded outcome stands"
    assert operation.review_required and operation.review_reason
    conflict = ledger.events(key)[-1]
    assert conflict.type == pb.EVENT_TYPE_OUTCOME_CONFLICT
    assert "pay_2" in conflict.detail_json, "the evidence of the second effect is kept"
    assert ledger.succeed(key, second.token, "pay_1").replayed, "the same outcome from another attempt agrees"
    check_history(ledger, key)


def test_a_success_after_the_lapse_needs_no_reconciliation(ledger, key):
    lease = ledger.register(key, claim=options(lease=SHORT)).lease
    lapsed(ledger, key)
    assert ledger.succeed(key, lease.token, "pay_1").operation.status == SUCCEEDED


def test_an_old_attempt_cannot_declare_failure(ledger, key):
    first = ledger.register(key, action="same_key", claim=options(lease=SHORT)).lease
    second = wait_until(lambda: got if (got := ledger.claim(key, lease=60)).granted else None, "the second grant").lease
    with refused("FAILED_PRECONDITION", "LEASE_LOST"):
        ledger.fail(key, first.token)
    assert ledger.operation(key).status == IN_PROGRESS
    ledger.fail(key, second.token, "card_declined")
    with refused("FAILED_PRECONDITION", "OUTCOME_CONFLICT"):
        ledger.succeed(key, first.token, "pay_1")
    assert ledger.operation(key).review_required


def test_two_steps_a_lease_that_ends_undispatched_goes_back_to_pending(ledger, key):
    lease = ledger.register(key, claim=options(lease=SHORT, two_step=True)).lease
    lapsed(ledger, key)
    operation = ledger.operation(key)
    assert operation.status == PENDING and not operation.dispatched
    assert ledger.get(key).next_step == CLAIM
    with refused("FAILED_PRECONDITION", "LEASE_LOST"):
        ledger.dispatch(key, lease.token)
    second = ledger.claim(key, lease=60, two_step=True)
    assert second.granted and second.lease.attempt == 2


def test_two_steps_a_lease_that_ends_dispatched_is_unknown(ledger, key):
    lease = ledger.register(key, claim=options(lease=SHORT, two_step=True)).lease
    ledger.dispatch(key, lease.token)
    assert ledger.operation(key).dispatched
    lapsed(ledger, key)
    assert ledger.operation(key).status == UNKNOWN
    assert ledger.claim(key).next_step == RECONCILE


def test_a_sure_lookup_may_release_after_the_settle_window(ledger, key):
    lease = ledger.register(key, action="sure_lookup", claim=options(lease=60)).lease
    ledger.mark_unknown(key, lease.token)
    early = ledger.reconcile(key, absent=pb.Absent())
    assert not early.applied and early.operation.status == UNKNOWN, "the request may still be under way"
    asked = count(1)
    released = wait_until(
        lambda: got
        if (got := ledger.reconcile(key, f"lookup {next(asked)}", absent=pb.Absent())).applied else None,
        "the settle window",
        every=0.1,
    )  # fmt: skip
    assert released.operation.status == PENDING and released.next_step == CLAIM
    again = ledger.claim(key, lease=60)
    assert again.granted and again.lease.attempt == 2
    check_history(ledger, key)


def test_an_eventual_lookup_never_releases_by_itself(ledger, key):
    lease = ledger.register(key, claim=options(lease=60)).lease
    ledger.mark_unknown(key, lease.token)
    answer = ledger.reconcile(key, absent=pb.Absent())
    assert not answer.applied and answer.operation.status == UNKNOWN
    assert answer.operation.HasField("next_check_time")


def test_the_executor_who_sent_nothing_may_say_so(ledger, key):
    lease = ledger.register(key, claim=options(lease=60)).lease
    answer = ledger.reconcile(key, lease_token=lease.token, absent=pb.Absent())
    assert answer.applied and answer.operation.status == PENDING
    assert ledger.claim(key, lease=60).lease.attempt == 2


def test_a_policy_may_send_every_unknown_outcome_to_a_person(ledger, key):
    lease = ledger.register(key, action="person_first", claim=options(lease=60)).lease
    ledger.mark_unknown(key, lease.token)
    answer = ledger.claim(key)
    assert not answer.granted and answer.next_step == REVIEW


def test_claim_and_get_may_wait_for_the_outcome(ledger, shared_server, key):
    lease = ledger.register(key, claim=options(lease=60)).lease
    with ThreadPoolExecutor(2) as pool:
        claim = pool.submit(lambda: ledger.claim(key, wait=5))
        get = pool.submit(lambda: ledger.get(key, wait=5))
        with pytest.raises(TimeoutError):
            claim.result(timeout=0.3)
        begun = time.monotonic()
        ledger.succeed(key, lease.token, "pay_1")
        assert claim.result(10).next_step == USE_RESULT
        assert get.result(10).operation.external_id == "pay_1"
        assert time.monotonic() - begun < 3, "they are woken, they do not sleep on"


# --- 200 tasks over 20 keys ----------------------------------------------------------------------

KEYS, TASKS, THREADS = 20, 200, 40


@dataclass
class Journal:
    """What the tasks saw. All times are the database's."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    grants: list[tuple[str, int, str, float]] = field(default_factory=list)  # key, attempt, token, expires
    successes: dict[str, list[str]] = field(default_factory=dict)  # key -> external ids accepted or replayed
    conflicts: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def task(ledger: Ledger, key: str, plan: list[float], journal: Journal) -> None:
    """Tries until the operation is finished. `plan` says how each grant ends."""
    while True:
        answer = ledger.claim(key, lease=SHORT)
        if answer.next_step == USE_RESULT:
            return
        if not answer.granted:
            if answer.next_step not in (WAIT, RECONCILE, REVIEW):
                journal.problems.append(f"{key}: not granted, next step {answer.next_step}")
            if answer.next_step == REVIEW:
                return
            ledger.get(key, wait=0.3)  # its outcome, or a little later
            continue
        lease = answer.lease
        with journal.lock:
            journal.grants.append((key, lease.attempt, lease.token, when(lease.expire_time)))
        fate = plan.pop() if plan else 1.0
        if fate < 0.45:  # killed: nobody hears of it again
            continue
        if fate < 0.65:  # too slow: reports its success long after its lease
            wait_until(lambda: ledger.operation(key).attempt_count > lease.attempt
                       or ledger.operation(key).status != IN_PROGRESS, "the lapse")  # fmt: skip
        elif fate < 0.75:  # gave up in order
            ledger.mark_unknown(key, lease.token)
            continue
        report(ledger, key, lease, journal)
        return


def report(ledger: Ledger, key: str, lease: pb.Lease, journal: Journal) -> None:
    external_id = f"{key}/effect-{lease.attempt}"
    try:
        ledger.succeed(key, lease.token, external_id)
        kept = journal.successes
    except grpc.RpcError as error:
        refusal = Refusal().read(error)
        if refusal.reason != "OUTCOME_CONFLICT":
            journal.problems.append(f"{key}: success of attempt {lease.attempt} refused: {refusal}")
        kept = journal.conflicts
    with journal.lock:
        kept.setdefault(key, []).append(external_id)


def test_200_tasks_over_20_keys_with_short_leases_and_random_kills(shared_server, ledger):
    random = seeded("leases")
    run = new_id()[:8]
    keys = [f"lease:{run}:{n}" for n in range(KEYS)]
    for key in keys:
        ledger.register(key, action="same_key")
    # At most three fatal endings a key, so that the test ends: every further grant completes.
    plans = {key: [random.random() for _ in range(3)] for key in keys}
    tasks = [key for key in keys for _ in range(TASKS // KEYS)]
    random.shuffle(tasks)
    journal = Journal()
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(task, ledger, key, plans[key], journal) for key in tasks]:
            done.result(timeout=80)
    assert journal.problems == []
    assert len(journal.grants) >= KEYS
    for key in keys:
        judge(ledger, key, journal)
    assert_no_duplicates(shared_server.store)


def judge(ledger: Ledger, key: str, journal: Journal) -> None:
    grants = sorted(g[1:] for g in journal.grants if g[0] == key)
    attempts = [attempt for attempt, _, _ in grants]
    assert attempts == list(range(1, len(attempts) + 1)), f"{key}: every grant has the next number: {attempts}"
    assert len({token for _, token, _ in grants}) == len(grants), "no token twice"

    operation, events = ledger.operation(key), check_history(ledger, key)
    assert operation.status == SUCCEEDED and operation.attempt_count == len(grants)
    claimed = {e.attempt: when(e.event_time) for e in events if e.type == pb.EVENT_TYPE_CLAIMED}
    given_up = {e.attempt for e in events if e.type == pb.EVENT_TYPE_MARKED_UNKNOWN}
    for (attempt, _, expires), (later, _, _) in zip(grants, grants[1:]):
        live = claimed[later] < expires and attempt not in given_up
        assert not live, f"{key}: attempt {later} granted {expires - claimed[later]:.3f} s before {attempt} ended"

    accepted, contradicting = journal.successes.get(key, []), journal.conflicts.get(key, [])
    assert accepted == [operation.external_id], "the first success stands"
    assert operation.review_required == bool(contradicting)
    kept = [json.loads(e.detail_json) for e in events if e.type == pb.EVENT_TYPE_OUTCOME_CONFLICT]
    assert all(any(other in json.dumps(detail) for detail in kept) for other in contradicting), "evidence is kept"


def test_execute_is_only_said_to_the_holder(ledger, key):
    claim_id = new_id()
    assert ledger.register(key, claim=options(claim_id, lease=60)).next_step == EXECUTE
    assert ledger.register(key).next_step == WAIT
    assert ledger.get(key).next_step == WAIT
    assert ledger.claim(key).next_step == WAIT
    assert ledger.claim(key, claim_id).next_step == EXECUTE
    ledger.reconcile(key, succeeded=success("pay_1"))
    assert ledger.claim(key, claim_id).next_step == USE_RESULT, "finished meanwhile: nothing to execute"
