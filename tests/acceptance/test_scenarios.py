"""The five retry scenarios, told by an agent's runner and a payment provider that keeps every effect.

The provider honours no idempotency keys: only the ledger stands between a retry and a second payment.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import pytest
from harness import assert_no_duplicates, rows_of
from ledger_client import (
    EXECUTE, RECONCILE, USE_RESULT, Ledger, check_history, event_names, new_id, options, refused, success,
)  # fmt: skip
from provider import AnswerLost, Provider

KEY = "order-7:payment"


@dataclass
class Runner:
    """One run of the tool call: register and claim, pay where allowed, tell the outcome."""

    ledger: Ledger
    provider: Provider

    def run(self, key: str, amount: int, claim_id: str, lose_answer: bool = False) -> str | None:
        answer = self.ledger.register(key, {"amount": amount}, claim=options(claim_id, lease=60))
        if answer.next_step == USE_RESULT:
            return answer.operation.external_id
        if answer.next_step != EXECUTE:
            return None
        try:
            paid = self.provider.pay(key, amount, lose_answer=lose_answer)
        except AnswerLost:
            self.ledger.mark_unknown(key, answer.lease.token, "timeout")
            return None
        return self.ledger.succeed(key, answer.lease.token, paid).operation.external_id


@pytest.fixture
def provider(tmp_path):
    provider = Provider(tmp_path / "effects.db")
    yield provider
    provider.close()


def operations(store) -> int:
    return int(store.query("SELECT COUNT(*) FROM agent_operations")[0][0])


@pytest.mark.parametrize("point,before", [("store::before_commit", 0), ("store::after_commit", 1)])
def test_1_and_2_same_key_same_request_stopped_around_the_commit(point, before, store, server, provider):
    claim_id = new_id()
    server.stop()
    server.start(FAILPOINTS=f"{point}=return")
    with pytest.raises(grpc.RpcError):
        Runner(server.client(), provider).run(KEY, 100, claim_id)
    server.wait_exit()
    server.close_clients()
    assert operations(store) == before
    assert provider.effects(KEY) == 0

    server.start()
    runner = Runner(server.client(), provider)
    assert runner.run(KEY, 100, claim_id) == "pay_1"
    assert operations(store) == 1
    assert runner.run(KEY, 100, new_id()) == "pay_1", "a later retry gets the result"
    assert provider.effects(KEY) == 1
    assert rows_of(store, KEY) == [(KEY, "succeeded", "1", "pay_1")]
    assert_no_duplicates(store)


def test_3_new_key_same_request_is_a_second_operation(store, server, provider):
    runner = Runner(server.client(), provider)
    runner.run("run-1:payment", 100, new_id())
    runner.run("run-2:payment", 100, new_id())
    assert operations(store) == 2
    assert provider.effects("run-") == 2, "the key is the intention: who makes a new one means it"


def test_4_same_key_other_request_is_a_conflict(store, server, provider):
    ledger = server.client()
    runner = Runner(ledger, provider)
    runner.run(KEY, 100, new_id())
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
        runner.run(KEY, 900, new_id())
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
        ledger.register(KEY, {"amount": 100}, action="send_email")
    assert operations(store) == 1
    assert provider.effects(KEY) == 1
    assert rows_of(store, KEY) == [(KEY, "succeeded", "1", "pay_1")]
    names = event_names(check_history(ledger, KEY))
    assert names == ["registered", "claimed", "succeeded", "conflict_refused", "conflict_refused"]


def test_5_a_deliberate_second_operation_has_a_second_key(store, server, provider):
    runner = Runner(server.client(), provider)
    assert runner.run(f"{KEY}:1", 100, new_id()) == "pay_1"
    assert runner.run(f"{KEY}:2", 100, new_id()) == "pay_2"
    assert operations(store) == 2
    assert provider.effects(KEY) == 2


def test_an_effect_whose_answer_was_lost_is_found_and_not_repeated(store, server, provider):
    ledger = server.client()
    runner = Runner(ledger, provider)
    assert runner.run(KEY, 100, new_id(), lose_answer=True) is None
    assert rows_of(store, KEY) == [(KEY, "unknown", "1", "")]

    assert runner.run(KEY, 100, new_id()) is None, "the retry may not pay"
    assert ledger.get(KEY).next_step == RECONCILE
    assert not ledger.claim(KEY).granted

    ledger.reconcile(KEY, succeeded=success(provider.lookup(KEY)))
    assert runner.run(KEY, 100, new_id()) == "pay_1"
    assert provider.effects(KEY) == 1
    assert rows_of(store, KEY) == [(KEY, "succeeded", "1", "pay_1")]


@pytest.mark.parametrize("point", ["store::before_commit", "store::after_commit"])
def test_the_effect_is_done_and_the_ledger_dies_while_it_is_told(point, store, server, provider):
    ledger = server.client()
    lease = ledger.register(KEY, {"amount": 100}, claim=options(lease=60)).lease
    server.stop()
    server.start(FAILPOINTS=f"{point}=return")
    paid = provider.pay(KEY, 100)
    with pytest.raises(grpc.RpcError):
        server.client().succeed(KEY, lease.token, paid)
    server.wait_exit()
    server.close_clients()
    server.start()
    assert server.client().succeed(KEY, lease.token, paid).operation.external_id == paid
    assert provider.effects(KEY) == 1
    assert rows_of(store, KEY) == [(KEY, "succeeded", "1", paid)]
