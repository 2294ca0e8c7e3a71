"""Reflection, and the sixty-second tour of the README, with the real grpcurl and no proto file."""

from __future__ import annotations

import json
import subprocess

import grpc
import pytest
from harness import cannot, grpcurl
from ledger_client import new_id

METHODS = {
    "Register", "Claim", "Dispatch", "Renew", "Complete", "MarkUnknown", "Reconcile", "Get", "List", "ListEvents",
    "Poll", "Watch",
}  # fmt: skip


class Curl:
    def __init__(self, program: str, address: str):
        self._program, self._address = program, address

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [self._program, "-plaintext", "-max-time", "20", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    def text(self, *verb: str) -> str:
        done = self.run(self._address, *verb)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(self, method: str, **request) -> dict:
        done = self.run("-d", json.dumps(request), self._address, f"opledger.v1.Ledger/{method}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, method: str, **request) -> str:
        done = self.run("-d", json.dumps(request), self._address, f"opledger.v1.Ledger/{method}")
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr


@pytest.fixture
def curl(shared_server) -> Curl:
    program = grpcurl()
    if program is None:
        cannot("grpcurl is not installed (tests/run does it)")
    return Curl(program, shared_server.address)


def test_list(curl):
    services = curl.text("list").split()
    assert "opledger.v1.Ledger" in services
    assert "grpc.health.v1.Health" in services
    assert any(name.startswith("grpc.reflection.v1.") for name in services)
    methods = {line.rsplit(".", 1)[1] for line in curl.text("list", "opledger.v1.Ledger").split()}
    assert methods == METHODS


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_in_both_versions(shared_server, version):
    """The two services have the same messages on the wire: list_services = field 7, answered in field 6."""
    with grpc.insecure_channel(shared_server.address) as channel:
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=lambda raw: raw,
            response_deserializer=lambda raw: raw,
        )
        answer = next(call(iter([b"\x3a\x00"]), timeout=10))
        assert b"opledger.v1.Ledger" in answer


def test_describe(curl):
    text = curl.text("describe", "opledger.v1.Ledger")
    assert "rpc Register ( .opledger.v1.RegisterRequest ) returns ( .opledger.v1.RegisterResponse )" in text
    assert "payload_json" in curl.text("describe", "opledger.v1.RegisterRequest")
    for status in ("PENDING", "IN_PROGRESS", "UNKNOWN", "SUCCEEDED", "FAILED_FINAL"):
        assert f"OPERATION_STATUS_{status}" in curl.text("describe", "opledger.v1.OperationStatus")


def test_the_sixty_second_tour(curl):
    key = f"tour:{new_id()}"
    payload = '{"amount": 4200, "currency": "EUR"}'
    made = curl.call("Register", operation_key=key, action_type="create_payment", payload_json=payload)
    assert made["created"] is True
    assert made["nextStep"] == "NEXT_STEP_CLAIM"
    assert made["operation"]["status"] == "OPERATION_STATUS_PENDING"

    claimed = curl.call("Claim", operation_key=key, claim={"claim_id": new_id(), "worker_id": "tour"})
    assert claimed["granted"] is True and claimed["nextStep"] == "NEXT_STEP_EXECUTE"

    done = curl.call(
        "Complete",
        operation_key=key,
        lease_token=claimed["lease"]["token"],
        succeeded={"external_id": "pay_1", "result_json": '{"id": "pay_1"}'},
    )
    assert done["operation"]["status"] == "OPERATION_STATUS_SUCCEEDED"

    got = curl.call("Get", operation_key=key)
    assert got["nextStep"] == "NEXT_STEP_USE_RESULT"
    assert got["operation"]["externalId"] == "pay_1"
    assert got["operation"]["attemptCount"] == 1

    again = curl.call("Register", operation_key=key, action_type="create_payment", payload_json=payload)
    assert "created" not in again and again["nextStep"] == "NEXT_STEP_USE_RESULT"

    conflict = curl.refused(
        "Register", operation_key=key, action_type="create_payment", payload_json='{"amount": 9900, "currency": "EUR"}'
    )
    assert "AlreadyExists" in conflict
    assert "google.rpc.ErrorInfo" in conflict
    assert "REQUEST_HASH_MISMATCH" in conflict and '"opledger"' in conflict
    assert "9900" not in conflict


def test_health(curl):
    done = curl.run(curl._address, "grpc.health.v1.Health/Check")
    assert json.loads(done.stdout) == {"status": "SERVING"}
