"""Callers that work as fast as they can and remember everything that was acknowledged to them."""

from __future__ import annotations

import threading
import time
from collections import Counter

import grpc
from ledger_client import Ledger, new_id, options

RANK = {"pending": 0, "in_progress": 1, "succeeded": 2}


class Load:
    """Threads that register with a claim, then complete, each time under a new key.

    A call that failed is repeated as it was until it succeeds or `stop` is called: that is what a caller does.
    """

    def __init__(self, address: str, threads: int = 8, timeout: float = 3.0):
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: dict[str, tuple[str, int, str]] = {}  # key -> (status, version, external_id)
        self.codes: Counter[str] = Counter()
        self.slowest = 0.0
        self._address, self._timeout = address, timeout
        self._threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(threads)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(self._timeout + 10)
            assert not thread.is_alive(), "a call outlives its deadline"

    def count(self) -> int:
        with self._lock:
            return len(self.acknowledged)

    def completed(self) -> int:
        with self._lock:
            return sum(status == "succeeded" for status, _, _ in self.acknowledged.values())

    def _work(self, number: int) -> None:
        with Ledger(self._address, timeout=self._timeout) as ledger:
            for turn in range(1_000_000):
                key = f"load:{number}:{turn}"
                claim = options(new_id(), lease=120)
                answer = self._until_done(lambda: ledger.register(key, {"turn": turn}, claim=claim))
                if answer is None:
                    return
                self._note(key, "in_progress", answer.operation.version, "")
                token, external_id = answer.lease.token, f"ext-{number}-{turn}"
                answer = self._until_done(lambda: ledger.succeed(key, token, external_id))
                if answer is None:
                    return
                self._note(key, "succeeded", answer.operation.version, external_id)

    def _note(self, key: str, status: str, version: int, external_id: str) -> None:
        with self._lock:
            self.acknowledged[key] = (status, version, external_id)

    def _until_done(self, call):
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                return call()
            except grpc.RpcError as error:
                with self._lock:
                    self.codes[error.code().name] += 1
                    self.slowest = max(self.slowest, time.monotonic() - begun)
                self._stopping.wait(0.05)
        return None


def assert_kept(load: Load, store) -> None:
    """Everything acknowledged is in the database, at that version or later, and was done once."""
    rows = store.query("SELECT operation_key, status, version, attempt_count, external_id FROM agent_operations")
    found = {row[0]: row[1:] for row in rows}
    assert len(found) == len(rows), "a key has two rows"
    assert load.acknowledged, "there was no load"
    for key, (status, version, external_id) in load.acknowledged.items():
        assert key in found, f"{key} was acknowledged as {status} and is gone"
        kept_status, kept_version, attempts, kept_id = found[key]
        assert RANK[kept_status] >= RANK[status] and int(kept_version) >= version, f"{key}: {found[key]}"
        assert attempts == "1", f"{key} counts {attempts} attempts"
        if external_id:
            assert kept_id == external_id
    # Each accepted change has its event.
    lost = store.query(
        "SELECT o.operation_key FROM agent_operations o WHERE o.version <> (SELECT COUNT(DISTINCT e.version) "
        "FROM agent_operation_events e WHERE e.operation_id = o.operation_id)"
    )
    assert lost == [], "versions without their event"
