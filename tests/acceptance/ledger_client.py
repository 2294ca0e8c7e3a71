"""Short calls to the ledger, and its errors taken apart. Every call has a deadline and no retry."""

from __future__ import annotations

import importlib
import json
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import stubs  # noqa: F401  (puts the generated code on the path)
import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from opledger.v1 import ledger_pb2_grpc

SERVICE = "opledger.v1.Ledger"

# All messages and enums of the package, whichever file they are in.
pb = SimpleNamespace(
    **{
        name: value
        for path in sorted(Path(stubs.FOLDER, "opledger", "v1").glob("*_pb2.py"))
        for name, value in vars(importlib.import_module(f"opledger.v1.{path.stem}")).items()
        if not name.startswith("_")
    }
)

PENDING = pb.OPERATION_STATUS_PENDING
IN_PROGRESS = pb.OPERATION_STATUS_IN_PROGRESS
UNKNOWN = pb.OPERATION_STATUS_UNKNOWN
SUCCEEDED = pb.OPERATION_STATUS_SUCCEEDED
FAILED_FINAL = pb.OPERATION_STATUS_FAILED_FINAL

EXECUTE, CLAIM, WAIT = pb.NEXT_STEP_EXECUTE, pb.NEXT_STEP_CLAIM, pb.NEXT_STEP_WAIT
RECONCILE, USE_RESULT = pb.NEXT_STEP_RECONCILE, pb.NEXT_STEP_USE_RESULT
STOP, REVIEW = pb.NEXT_STEP_STOP, pb.NEXT_STEP_REVIEW

REFUSAL_EVENTS = (pb.EVENT_TYPE_CONFLICT_REFUSED, pb.EVENT_TYPE_OUTCOME_CONFLICT)

_OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]


def new_id() -> str:
    return str(uuid.uuid4())


def seconds(value: float | None) -> Duration | None:
    if value is None:
        return None
    duration = Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


def when(timestamp) -> float:
    """Seconds since 1970 of a protobuf timestamp."""
    return timestamp.seconds + timestamp.nanos / 1e9


def options(claim_id: str | None = None, lease: float | None = None, worker: str = "test", two_step: bool = False):
    return pb.ClaimOptions(
        claim_id=claim_id or new_id(), worker_id=worker, lease_duration=seconds(lease), two_step=two_step
    )


def success(external_id: str | None = None, result: Any = None) -> pb.Success:
    return pb.Success(external_id=external_id, result_json=as_json(result))


def failure(error_code: str, message: str | None = None) -> pb.Failure:
    return pb.Failure(error_code=error_code, error_message=message)


def as_json(value: Any) -> str | None:
    """Texts go out as they are, anything else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


class Ledger:
    """One channel to one server. `namespace` holds for all calls."""

    def __init__(self, address: str, namespace: str = "", timeout: float = 10.0):
        self.address, self.namespace, self.timeout = address, namespace, timeout
        self.connect()

    def connect(self) -> None:
        """A fresh connection. (gRPC may put the next call on a connection that is just being lost.)"""
        self.channel = grpc.insecure_channel(self.address, options=_OPTIONS)
        self.stub = ledger_pb2_grpc.LedgerStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.channel.close()

    def call(self, method: str, timeout: float | None = None, **fields: Any):
        request = getattr(pb, f"{method}Request")(namespace=self.namespace, **fields)
        return getattr(self.stub, method)(request, timeout=timeout or self.timeout)

    def register(
        self, key: str, payload: Any = None, action: str = "create_payment", *, claim=None, request_hash=None, **fields
    ) -> pb.RegisterResponse:
        if request_hash is not None:
            fields["request_hash"] = request_hash
        else:
            fields["payload_json"] = as_json({"amount": 100} if payload is None else payload)
        return self.call("Register", operation_key=key, action_type=action, claim=claim, **fields)

    def claim(self, key: str, claim_id: str | None = None, *, lease=None, two_step=False, wait=None, **fields):
        claim = options(claim_id, lease, two_step=two_step)
        return self.call("Claim", operation_key=key, claim=claim, wait=seconds(wait), **fields)

    def dispatch(self, key: str, token: str, **fields) -> pb.DispatchResponse:
        return self.call("Dispatch", operation_key=key, lease_token=token, **fields)

    def renew(self, key: str, token: str, lease: float | None = None, **fields) -> pb.RenewResponse:
        return self.call("Renew", operation_key=key, lease_token=token, lease_duration=seconds(lease), **fields)

    def succeed(self, key: str, token: str, external_id: str | None = None, result: Any = None, **fields):
        return self.call(
            "Complete", operation_key=key, lease_token=token, succeeded=success(external_id, result), **fields
        )

    def fail(self, key: str, token: str, code: str = "declined", message: str | None = None):
        return self.call("Complete", operation_key=key, lease_token=token, failed_final=failure(code, message))

    def mark_unknown(self, key: str, token: str, code: str = "timeout", **fields) -> pb.MarkUnknownResponse:
        return self.call("MarkUnknown", operation_key=key, lease_token=token, error_code=code, **fields)

    def reconcile(self, key: str, source: str = "lookup", **observation) -> pb.ReconcileResponse:
        return self.call("Reconcile", operation_key=key, evidence=pb.Evidence(source=source), **observation)

    def get(self, key: str, wait: float | None = None, **fields) -> pb.GetResponse:
        return self.call("Get", operation_key=key, wait=seconds(wait), **fields)

    def operation(self, key: str) -> pb.Operation:
        return self.get(key).operation

    def list(self, **fields) -> pb.ListResponse:
        return self.call("List", **fields)

    def events(self, key: str) -> list[pb.Event]:
        """All events of one operation, oldest first."""
        found: list[pb.Event] = []
        token = ""
        while True:
            page = self.call("ListEvents", operation_key=key, page_size=100, page_token=token)
            found += page.events
            token = page.next_page_token
            if not token:
                return found

    def health_status(self, service: str = "", timeout: float = 2.0) -> int:
        return self.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout).status


def event_names(events: list[pb.Event]) -> list[str]:
    return [pb.EventType.Name(event.type).removeprefix("EVENT_TYPE_").lower() for event in events]


def check_history(ledger: Ledger, key: str) -> list[pb.Event]:
    """Each accepted change has exactly one event, with its version; returns the events."""
    operation, events = ledger.operation(key), ledger.events(key)
    changes = [e.version for e in events if e.type not in REFUSAL_EVENTS]
    assert len(changes) == len(set(changes)), f"a version has two events: {event_names(events)} {changes}"
    versions = [e.version for e in events]
    assert sorted(set(versions)) == list(range(1, operation.version + 1)), f"{event_names(events)} {versions}"
    sequences = [e.sequence for e in events]
    assert sequences == sorted(set(sequences)), "sequence numbers grow"
    assert events[-1].status == operation.status
    return events


@dataclass
class Refusal:
    """An error of the service, decoded."""

    code: grpc.StatusCode | None = None
    message: str = ""
    reason: str = ""
    domain: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    preconditions: list[tuple[str, str, str]] = field(default_factory=list)
    resource: tuple[str, str] | None = None
    raw: bytes = b""

    def read(self, error: grpc.RpcError) -> "Refusal":
        self.code, self.message = error.code(), error.details() or ""
        status = rpc_status.from_call(error)
        if status is None:
            return self
        self.raw = status.SerializeToString()
        assert status.code == self.code.value[0] and status.message == self.message, "details agree with the status"
        for any_detail in status.details:
            kind = any_detail.TypeName()
            detail = getattr(error_details_pb2, kind.rsplit(".", 1)[1])()
            assert any_detail.Unpack(detail)
            if kind == "google.rpc.ErrorInfo":
                self.reason, self.domain, self.metadata = detail.reason, detail.domain, dict(detail.metadata)
            elif kind == "google.rpc.BadRequest":
                self.fields = {v.field: v.description for v in detail.field_violations}
            elif kind == "google.rpc.RetryInfo":
                self.retry_after = detail.retry_delay.ToNanoseconds() / 1e9
            elif kind == "google.rpc.PreconditionFailure":
                self.preconditions = [(v.type, v.subject, v.description) for v in detail.violations]
            elif kind == "google.rpc.ResourceInfo":
                self.resource = (detail.resource_type, detail.resource_name)
        return self


@contextmanager
def refused(code: str, reason: str | None = None) -> Iterator[Refusal]:
    """The block must end in this error; `reason` is the ErrorInfo's, whose domain is `opledger`."""
    refusal = Refusal()
    try:
        yield refusal
    except grpc.RpcError as error:
        refusal.read(error)
    else:
        raise AssertionError(f"expected {code} {reason or ''}, but the call succeeded")
    assert refusal.code is not None and refusal.code.name == code, f"expected {code}, got {refusal}"
    if reason is not None:
        assert (refusal.domain, refusal.reason) == ("opledger", reason), f"{refusal}"
    assert refusal.message, "every error says something to a person"


def invalid(*fields: str):
    """The block must be refused for exactly these fields."""
    return _invalid(set(fields))


@contextmanager
def _invalid(expected: set[str]) -> Iterator[Refusal]:
    with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        yield refusal
    assert set(refusal.fields) == expected, f"{refusal}"
    assert all(refusal.fields.values()), "every faulty field is explained"
