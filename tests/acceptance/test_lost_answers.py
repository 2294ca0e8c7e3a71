"""An answer is lost on the wire (the proxy cuts it); the caller repeats the call over a new connection."""

from __future__ import annotations

from typing import Iterator

import grpc
import pytest
from harness import rows_of
from ledger_client import (
    EXECUTE, SUCCEEDED, UNKNOWN, Ledger, check_history, event_names, new_id, options, success,
)  # fmt: skip
from proxy import LossyProxy


@pytest.fixture
def lossy(shared_server) -> Iterator[tuple[LossyProxy, Ledger]]:
    with LossyProxy(shared_server.port) as proxy, Ledger(proxy.address) as client:
        client.health_status()  # connected
        yield proxy, client


def losing(lossy: tuple[LossyProxy, Ledger], call):
    """Makes the call; the server does its work and the answer is lost. The client connects anew."""
    proxy, client = lossy
    proxy.lose_next_answer()
    with pytest.raises(grpc.RpcError) as lost:
        call()
    assert lost.value.code() == grpc.StatusCode.UNAVAILABLE
    assert proxy.lost.is_set()
    client.close()
    client.connect()


def test_register_says_that_it_was_there_already(lossy, ledger, key):
    _, client = lossy
    losing(lossy, lambda: client.register(key))
    answer = client.register(key)
    assert not answer.created
    assert event_names(check_history(ledger, key)) == ["registered"]


def test_claim_gives_the_same_lease_and_counts_no_second_attempt(lossy, ledger, key, shared_server):
    _, client = lossy
    client.register(key)
    claim_id = new_id()
    losing(lossy, lambda: client.claim(key, claim_id, lease=60))
    held = ledger.operation(key)
    assert held.attempt_count == 1, "the claim was made; only its answer was lost"
    assert not ledger.claim(key).granted, "another claim_id does not get it"

    again = client.claim(key, claim_id, lease=60)
    assert again.granted and again.next_step == EXECUTE
    assert again.lease.attempt == 1
    assert again.lease.expire_time == held.lease_expire_time, "a repeat does not extend the lease"
    assert client.claim(key, claim_id, lease=60).lease.token == again.lease.token
    assert rows_of(shared_server.store, key) == [(key, "in_progress", "1", "")]
    assert client.succeed(key, again.lease.token, "pay_1").operation.status == SUCCEEDED


def test_register_with_claim_gives_the_same_lease(lossy, ledger, key, shared_server):
    _, client = lossy
    claim = options(new_id(), lease=60)
    losing(lossy, lambda: client.register(key, claim=claim))
    again = client.register(key, claim=claim)
    assert not again.created
    assert again.next_step == EXECUTE and again.lease.attempt == 1 and again.lease.token
    assert client.claim(key, claim.claim_id).lease.token == again.lease.token, "Claim knows the same claim_id"
    assert rows_of(shared_server.store, key) == [(key, "in_progress", "1", "")]
    assert event_names(check_history(ledger, key)) == ["registered", "claimed"]


def test_dispatch_is_marked_once(lossy, ledger, key):
    _, client = lossy
    lease = client.register(key, claim=options(lease=60, two_step=True)).lease
    losing(lossy, lambda: client.dispatch(key, lease.token))
    assert client.dispatch(key, lease.token).lease.token == lease.token
    assert ledger.operation(key).dispatched
    assert event_names(check_history(ledger, key)) == ["registered", "claimed", "dispatched"]


def test_complete_is_replayed(lossy, ledger, key, shared_server):
    _, client = lossy
    lease = client.register(key, claim=options(lease=60)).lease
    losing(lossy, lambda: client.succeed(key, lease.token, "pay_1", '{"b": 1, "a": 1.50}'))
    again = client.succeed(key, lease.token, "pay_1", '{"b": 1, "a": 1.50}')
    assert again.replayed
    assert again.operation.status == SUCCEEDED
    assert again.operation.result_json == '{"b": 1, "a": 1.50}', "byte for byte as given"
    assert rows_of(shared_server.store, key) == [(key, "succeeded", "1", "pay_1")]
    assert event_names(check_history(ledger, key)) == ["registered", "claimed", "succeeded"]


def test_a_final_failure_is_replayed(lossy, ledger, key):
    _, client = lossy
    lease = client.register(key, claim=options(lease=60)).lease
    losing(lossy, lambda: client.fail(key, lease.token, "card_declined"))
    again = client.fail(key, lease.token, "card_declined")
    assert again.replayed and again.operation.error_code == "card_declined"
    assert event_names(check_history(ledger, key)) == ["registered", "claimed", "failed_final"]


def test_mark_unknown_is_replayed(lossy, ledger, key, shared_server):
    _, client = lossy
    lease = client.register(key, claim=options(lease=60)).lease
    losing(lossy, lambda: client.mark_unknown(key, lease.token, "timeout"))
    again = client.mark_unknown(key, lease.token, "timeout")
    assert again.replayed and again.operation.status == UNKNOWN
    assert rows_of(shared_server.store, key) == [(key, "unknown", "1", "")]
    assert event_names(check_history(ledger, key)) == ["registered", "claimed", "marked_unknown"]


def test_reconcile_is_replayed(lossy, ledger, key):
    _, client = lossy
    lease = client.register(key, claim=options(lease=60)).lease
    client.mark_unknown(key, lease.token)
    losing(lossy, lambda: client.reconcile(key, succeeded=success("pay_1")))
    again = client.reconcile(key, succeeded=success("pay_1"))
    assert again.replayed and again.operation.status == SUCCEEDED
    assert event_names(check_history(ledger, key)) == ["registered", "claimed", "marked_unknown", "succeeded"]
