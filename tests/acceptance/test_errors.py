"""Every error: its code, its reason, its details; one test a reason. Decoded with grpcio-status."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from ledger_client import (
    FAILED_FINAL, IN_PROGRESS, SUCCEEDED, Ledger, Refusal, event_names, failure, invalid, new_id, options, pb,
    refused, success,
)  # fmt: skip

NO_TOKEN = "a1." + "0" * 32


def held(ledger: Ledger, key: str, **fields) -> str:
    return ledger.register(key, claim=options(lease=60), **fields).lease.token


# --- INVALID_ARGUMENT / INVALID_FIELD ------------------------------------------------------------


def test_every_faulty_field_is_named_at_once(ledger):
    with invalid("operation_key", "action_type", "payload_json", "labels", "claim.claim_id"):
        ledger.register("", '{"a":1,"a":2}', action="", labels={"bad name!": "x"}, claim=options("not-a-uuid"))


@pytest.mark.parametrize(
    "method,fields,faulty",
    [
        ("Register", {"action_type": "send_email", "payload_json": "{}"}, "operation_key"),
        ("Register", {"operation_key": "k", "payload_json": "{}"}, "action_type"),
        ("Register", {"operation_key": "k", "action_type": "send_email", "request_hash": "ABC"}, "request_hash"),
        ("Register", {"operation_key": "k", "action_type": "send_email", "request_hash": "A" * 64}, "request_hash"),
        ("Claim", {"operation_key": "k", "claim": pb.ClaimOptions()}, "claim.claim_id"),
        ("Claim", {"operation_key": "", "claim": options()}, "operation_key"),
        ("Claim", {"operation_key": "k", "claim": options(lease=-1)}, "claim.lease_duration"),
        ("Claim", {"operation_key": "k", "claim": options(lease=10**9)}, "claim.lease_duration"),
        ("Claim", {"operation_key": "k", "claim": options(), "expected_request_hash": "x"}, "expected_request_hash"),
        ("Dispatch", {"operation_key": "k"}, "lease_token"),
        ("Renew", {"operation_key": "k"}, "lease_token"),
        ("Complete", {"lease_token": NO_TOKEN, "succeeded": success()}, "operation_key"),
        ("Complete", {"operation_key": "k", "succeeded": success()}, "lease_token"),
        ("Complete", {"operation_key": "k", "lease_token": NO_TOKEN, "failed_final": failure("")}, "failed_final.error_code"),
        ("Complete", {"operation_key": "k", "lease_token": NO_TOKEN, "succeeded": success("x" * 201)}, "succeeded.external_id"),
        ("Complete", {"operation_key": "k", "lease_token": NO_TOKEN, "succeeded": success(None, "{")}, "succeeded.result_json"),
        ("MarkUnknown", {"operation_key": "k", "lease_token": NO_TOKEN}, "error_code"),
        ("MarkUnknown", {"operation_key": "k", "lease_token": NO_TOKEN, "error_code": "e" * 101}, "error_code"),
        ("List", {"page_size": -1}, "page_size"),
        ("List", {"page_token": "no such token"}, "page_token"),
        ("ListEvents", {"operation_key": ""}, "operation_key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_faulty_field_is_named(ledger, method, fields, faulty):
    with invalid(faulty):
        ledger.call(method, **fields)


@pytest.mark.parametrize(
    "method,fields",
    [
        ("Register", {"operation_key": "k", "action_type": "send_email"}),
        ("Complete", {"operation_key": "k", "lease_token": NO_TOKEN}),
        ("Reconcile", {"operation_key": "k"}),
        ("Get", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_choice_that_was_not_made_is_refused(ledger, method, fields):
    with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        ledger.call(method, **fields)
    assert refusal.fields


def test_the_namespace_is_checked(shared_server):
    with Ledger(shared_server.address, namespace="Not A Namespace") as client:
        with invalid("namespace"):
            client.get("k")


# --- NOT_FOUND -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda ledger, key: ledger.get(key),
        lambda ledger, key: ledger.claim(key),
        lambda ledger, key: ledger.dispatch(key, NO_TOKEN),
        lambda ledger, key: ledger.succeed(key, NO_TOKEN),
        lambda ledger, key: ledger.fail(key, NO_TOKEN),
        lambda ledger, key: ledger.mark_unknown(key, NO_TOKEN),
        lambda ledger, key: ledger.reconcile(key, succeeded=success("x")),
        lambda ledger, key: ledger.events(key),
    ],
    ids=["Get", "Claim", "Dispatch", "Complete", "Complete-failed", "MarkUnknown", "Reconcile", "ListEvents"],
)
def test_an_unknown_key(ledger, key, call):
    with refused("NOT_FOUND", "OPERATION_NOT_FOUND") as refusal:
        call(ledger, key)
    assert refusal.resource and key in refusal.resource[1]
    assert refusal.metadata == {"namespace": "default", "operationKey": key}


def test_an_unknown_operation_id(ledger):
    with refused("NOT_FOUND", "OPERATION_NOT_FOUND"):
        ledger.call("Get", operation_id=new_id())


def test_namespaces_do_not_see_each_other(ledger, shared_server, key):
    operation = ledger.register(key).operation
    assert operation.namespace == "default"
    with Ledger(shared_server.address, namespace="other-team") as other:
        with refused("NOT_FOUND", "OPERATION_NOT_FOUND"):
            other.get(key)
        with refused("NOT_FOUND", "OPERATION_NOT_FOUND"):
            other.call("Get", operation_id=operation.operation_id)
        assert other.register(key, {"another": "request"}).created


# --- ALREADY_EXISTS ------------------------------------------------------------------------------


def test_the_same_key_for_another_request(ledger, key):
    ledger.register(key, {"amount": 100, "to": {"iban": "DE1"}}, store_payload=True)
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH") as refusal:
        ledger.register(key, {"amount": 731731, "to": {"iban": "XX998877"}})
    assert set(refusal.metadata["differingPointers"].split()) == {"/amount", "/to/iban"}
    assert refusal.metadata["operationKey"] == key and refusal.resource
    assert b"731731" not in refusal.raw and b"XX998877" not in refusal.raw and b"DE1" not in refusal.raw
    assert ledger.operation(key).version == 1, "nothing changed"
    assert event_names(ledger.events(key)) == ["registered", "conflict_refused"]


def test_the_same_key_for_another_action(ledger, key):
    ledger.register(key, {"amount": 100})
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
        ledger.register(key, {"amount": 100}, action="send_email")


def test_the_conflict_holds_for_a_finished_operation_too(ledger, key):
    ledger.succeed(key, held(ledger, key), "pay_1")
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
        ledger.register(key, {"amount": 1})


def test_claim_may_state_the_request_that_it_expects(ledger, key):
    known = ledger.register(key).operation.request_hash
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
        ledger.claim(key, expected_request_hash="0" * 64)
    assert ledger.operation(key).attempt_count == 0
    assert ledger.claim(key, expected_request_hash=known).granted


def test_conflicts_beyond_a_hundred_are_only_counted(ledger, key):
    ledger.register(key)

    def conflict(n: int) -> None:
        with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
            ledger.register(key, {"other": n})

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(conflict, range(130)))
    assert event_names(ledger.events(key)).count("conflict_refused") == 100
    assert ledger.operation(key).version == 1


# --- FAILED_PRECONDITION -------------------------------------------------------------------------


def test_a_token_that_is_not_current(ledger, key):
    token = held(ledger, key)
    for wrong in (NO_TOKEN, token[:-1] + ("0" if token[-1] != "0" else "1"), "a2" + token[2:], "nonsense"):
        for call in (
            lambda: ledger.renew(key, wrong),
            lambda: ledger.dispatch(key, wrong),
            lambda: ledger.succeed(key, wrong, "pay_1"),
            lambda: ledger.fail(key, wrong),
            lambda: ledger.mark_unknown(key, wrong),
        ):
            with refused("FAILED_PRECONDITION", "LEASE_LOST") as refusal:
                call()
            assert refusal.preconditions
            assert refusal.metadata["status"] == "in_progress" and refusal.metadata["nextStep"] == "WAIT"
    assert ledger.operation(key).status == IN_PROGRESS
    assert ledger.operation(key).version == 2


def test_a_token_opens_only_its_own_operation(ledger, key):
    token, other = held(ledger, key), f"{key}/other"
    held(ledger, other)
    with refused("FAILED_PRECONDITION", "LEASE_LOST"):
        ledger.succeed(other, token, "pay_1")


def test_a_contradicting_outcome(ledger, key):
    token = held(ledger, key)
    ledger.succeed(key, token, "pay_1")
    for call in (
        lambda: ledger.succeed(key, token, "pay_2"),
        lambda: ledger.fail(key, token),
        lambda: ledger.reconcile(key, succeeded=success("pay_3")),
        lambda: ledger.reconcile(key, failed=failure("not_there")),
    ):
        with refused("FAILED_PRECONDITION", "OUTCOME_CONFLICT") as refusal:
            call()
        assert refusal.preconditions
    operation = ledger.operation(key)
    assert (operation.status, operation.external_id) == (SUCCEEDED, "pay_1")
    assert operation.review_required
    assert ledger.succeed(key, token, "pay_1").replayed
    assert ledger.succeed(key, token).replayed, "a report without an id contradicts nothing"


def test_an_id_that_the_recorded_success_lacks_contradicts_it(ledger, key):
    token = held(ledger, key)
    ledger.succeed(key, token)
    with refused("FAILED_PRECONDITION", "OUTCOME_CONFLICT"):
        ledger.succeed(key, token, "pay_1")
    assert not ledger.operation(key).HasField("external_id"), "nothing is filled in afterwards"


def test_a_final_failure_with_another_code(ledger, key):
    token = held(ledger, key)
    ledger.fail(key, token, "card_declined")
    assert ledger.fail(key, token, "card_declined").replayed
    with refused("FAILED_PRECONDITION", "ALREADY_TERMINAL"):
        ledger.fail(key, token, "no_funds")
    assert ledger.operation(key).error_code == "card_declined"


def test_a_success_after_a_final_failure(ledger, key):
    token = held(ledger, key)
    ledger.fail(key, token, "card_declined", "no funds")
    with refused("FAILED_PRECONDITION", "OUTCOME_CONFLICT"):
        ledger.succeed(key, token, "pay_1")
    operation = ledger.operation(key)
    assert (operation.status, operation.error_code, operation.error_message) == (
        FAILED_FINAL, "card_declined", "no funds",
    )  # fmt: skip
    assert operation.review_required


def test_a_command_on_a_finished_operation(ledger, key):
    token = held(ledger, key)
    ledger.succeed(key, token, "pay_1")
    for call in (
        lambda: ledger.mark_unknown(key, token),
        lambda: ledger.reconcile(key, absent=pb.Absent()),
        lambda: ledger.reconcile(key, indeterminate=pb.Indeterminate()),
    ):
        with refused("FAILED_PRECONDITION", "ALREADY_TERMINAL") as refusal:
            call()
        assert refusal.preconditions
    for call in (lambda: ledger.renew(key, token), lambda: ledger.dispatch(key, token)):
        with refused("FAILED_PRECONDITION", "LEASE_LOST"):
            call()


# --- ABORTED, RESOURCE_EXHAUSTED, UNIMPLEMENTED ----------------------------------------------------


def test_a_version_that_does_not_match(ledger, key):
    ledger.mark_unknown(key, held(ledger, key))
    version = ledger.operation(key).version
    with refused("ABORTED", "VERSION_MISMATCH") as refusal:
        ledger.reconcile(key, succeeded=success("pay_1"), if_version=version - 1)
    assert refusal.metadata["currentVersion"] == str(version)
    assert ledger.operation(key).version == version
    answer = ledger.reconcile(key, succeeded=success("pay_1"), if_version=version)
    assert answer.applied and answer.operation.version == version + 1


def test_too_many_calls_in_flight(store, start):
    server = start(store, env={"OPLEDGER_MAX_IN_FLIGHT": "4"})
    client = server.client()
    client.register("warm")
    with store.locked():
        calls = [
            client.stub.Register.future(
                pb.RegisterRequest(operation_key=f"k{n}", action_type="send_email", payload_json="{}"), timeout=10
            )
            for n in range(40)
        ]
        refusals = []
        for call in calls:
            try:
                call.result(timeout=0.2)
            except grpc.FutureTimeoutError:
                pass
            except grpc.RpcError as error:
                refusals.append(Refusal().read(error))
    assert len(refusals) >= 30, "what does not fit is refused at once, not queued"
    for refusal in refusals:
        assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (refusal.domain, refusal.reason) == ("opledger", "OVERLOADED")
        assert refusal.retry_after and refusal.retry_after > 0
    accepted = [call for call in calls if call.code() == grpc.StatusCode.OK]
    assert accepted, "and what fits is done"
    assert client.register("after").created
