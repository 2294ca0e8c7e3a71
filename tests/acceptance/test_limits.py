"""What is too long, too big or unprintable is refused in the same words by both stores."""

from __future__ import annotations

import grpc
import pytest
from ledger_client import Refusal, invalid, new_id, options, pb


def unique(text: str, length: int) -> str:
    """A key of exactly this many characters that ends in a fresh id."""
    return (text * length)[: length - 37] + ":" + new_id()


@pytest.mark.parametrize("letter", ["k", "é", "漢", "🦀"])
def test_keys_have_1_to_200_characters_not_bytes(ledger, letter):
    longest = unique(letter, 200)
    assert len(longest) == 200
    assert ledger.register(longest).created
    assert ledger.operation(longest).operation_key == longest
    with invalid("operation_key"):
        ledger.register(unique(letter, 201))


@pytest.mark.parametrize(
    "character", ["\0", "\n", "\t", "\x1b", "\x7f", "\x85", "\u2028"], ids=lambda c: f"U+{ord(c):04X}"
)
def test_keys_have_no_control_characters(ledger, character):
    with invalid("operation_key"):
        ledger.register(f"before{character}after")
    with invalid("operation_key"):
        ledger.get(f"before{character}after")


@pytest.mark.parametrize("key", ["", " ", " k", "k "])
def test_keys_are_not_empty_or_blank_at_an_end(ledger, key):
    with invalid("operation_key"):
        ledger.register(key)


def test_keys_are_taken_as_they_are(ledger, shared_server):
    """Quotes, wild cards, case and Unicode forms all make different keys."""
    run = new_id()
    forms = ["it's", 'say "x"', "a%", "a_", "A_", "a\\", "e\u0301", "\u00e9", "$1", "?", "a;--", "a b", "ß", "SS"]
    for form in forms:
        assert ledger.register(f"{run}/{form}").created, form
    for form in forms:
        assert ledger.operation(f"{run}/{form}").operation_key == f"{run}/{form}"


def test_action_types_have_1_to_80_characters(ledger, key):
    assert ledger.register(key, action="a" * 80).created
    for action in ("a" * 81, "", "has space", "a\0b", "ä"):
        with invalid("action_type"):
            ledger.register(f"{key}/2", action=action)


def test_labels_are_limited(ledger, key):
    labels = {f"label-{n}": "v" for n in range(32)}
    assert ledger.register(key, labels=labels).operation.labels == labels
    for wrong in (
        {**labels, "one-more": "v"},
        {"": "v"},
        {"n" * 64: "v"},
        {"has space": "v"},
        {"name": "control\x01"},
        {"name": "nul\0"},
    ):
        with invalid("labels"):
            ledger.register(f"{key}/2", labels=wrong)


def test_texts_of_an_outcome_are_limited(ledger, key):
    lease = ledger.register(key, claim=options(lease=60)).lease
    with invalid("succeeded.external_id"):
        ledger.succeed(key, lease.token, "e" * 201)
    with invalid("succeeded.external_id"):
        ledger.succeed(key, lease.token, "nul\0")
    with invalid("failed_final.error_code"):
        ledger.fail(key, lease.token, "c" * 101)
    with invalid("failed_final.error_message"):
        ledger.fail(key, lease.token, "code", "m" * 1001)
    assert ledger.succeed(key, lease.token, "e" * 200).operation.external_id == "e" * 200


def test_payloads_and_results_have_the_policys_size(ledger, key):
    def text(size: int) -> str:
        return '"' + "x" * (size - 2) + '"'

    lease = ledger.register(key, text(200), action="small", claim=options(lease=60)).lease
    with invalid("payload_json"):
        ledger.register(f"{key}/2", text(201), action="small")
    with invalid("succeeded.result_json"):
        ledger.succeed(key, lease.token, "pay_1", text(101))
    assert ledger.succeed(key, lease.token, "pay_1", text(100)).operation.result_json == text(100)


def test_the_default_payload_size_is_256_kib(ledger, key):
    ledger.register(key, '"' + "x" * (256 * 1024 - 2) + '"')
    with invalid("payload_json"):
        ledger.register(f"{key}/2", '"' + "x" * (256 * 1024 - 1) + '"')


def test_a_message_above_the_transports_limit_is_refused_and_the_service_goes_on(ledger, key):
    with pytest.raises(grpc.RpcError) as error:
        ledger.register(key, '"' + "x" * (17 * 1024 * 1024) + '"')
    refusal = Refusal().read(error.value)
    assert refusal.code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OUT_OF_RANGE), refusal
    assert ledger.register(key).created


def test_a_store_of_many_does_not_mix_them_up(ledger):
    """Neighbours in one batch: the faulty one is refused, the others are done."""
    run = new_id()
    calls = {
        n: ledger.stub.Register.future(
            pb.RegisterRequest(
                operation_key=f"{run}/{n}" if n % 5 else "\0", action_type="send_email", payload_json=f'{{"n":{n}}}'
            ),
            timeout=10,
        )
        for n in range(100)
    }
    for n, call in calls.items():
        if n % 5:
            assert call.result().operation.operation_key == f"{run}/{n}"
        else:
            assert call.code() == grpc.StatusCode.INVALID_ARGUMENT
