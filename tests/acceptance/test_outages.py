"""kill -9 under load, and a database that goes away: what was acknowledged stays, calls end, service returns."""

from __future__ import annotations

import threading
import time

import pytest
from harness import NOT_SERVING, SERVING, PostgresStore, assert_no_duplicates, wait_until
from ledger_client import refused
from load import Load, assert_kept

ALLOWED = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}


@pytest.fixture
def cluster_store(own_cluster):
    return PostgresStore(own_cluster.url)


def test_kill_9_under_load_loses_nothing_acknowledged(store, server):
    with Load(server.address) as load:
        for _ in range(3):
            before = load.completed()
            wait_until(lambda: load.completed() >= before + 100, "100 more operations", limit=20)
            server.kill()
            server.start()
        before = load.completed()
        wait_until(lambda: load.completed() > before + 20, "work after the last restart")
    assert set(load.codes) <= ALLOWED, load.codes
    assert_kept(load, store)
    assert_no_duplicates(store)


def test_postgres_crashes_under_load_and_the_service_recovers_by_itself(own_cluster, cluster_store, start):
    server = start(cluster_store)
    with Load(server.address, timeout=5.0) as load:
        wait_until(lambda: load.completed() >= 100, "load", limit=20)
        own_cluster.stop("immediate")
        wait_until(lambda: load.codes["UNAVAILABLE"] > 0, "calls that end with UNAVAILABLE")
        own_cluster.start()
        back = time.monotonic()
        before = load.completed()
        wait_until(lambda: load.completed() >= before + 20, "work after the crash", limit=15)
        recovered = time.monotonic() - back
        for _ in range(2):  # and at once, with no time to notice
            own_cluster.stop("immediate")
            own_cluster.start()
            before = load.completed()
            wait_until(lambda: load.completed() >= before + 50, "work after a quick restart", limit=15)
    print(f"recovered in {recovered:.1f} s; codes {dict(load.codes)}; slowest failed call {load.slowest:.1f} s")
    assert recovered < 10
    assert set(load.codes) <= ALLOWED, load.codes
    assert server.alive()
    assert_kept(load, cluster_store)
    assert_no_duplicates(cluster_store)


@pytest.mark.timeout(120)
def test_health_follows_the_store_and_liveness_does_not(own_cluster, cluster_store, start):
    server = start(cluster_store)
    client = server.client()
    assert server.http("/livez")[0] == 200
    assert server.http("/readyz")[0] == 200

    own_cluster.stop("fast")
    wait_until(lambda: client.health_status() == NOT_SERVING, "NOT_SERVING", limit=30)
    wait_until(lambda: server.http("/readyz")[0] == 503, "/readyz 503", limit=5)
    assert client.health_status("opledger.v1.Ledger") == NOT_SERVING
    assert server.http("/livez")[0] == 200
    begun = time.monotonic()
    with refused("UNAVAILABLE", "STORE_UNAVAILABLE") as refusal:
        client.register("away")
    assert refusal.retry_after and refusal.retry_after > 0
    assert time.monotonic() - begun < 9, "said in time, not at the caller's deadline"
    with refused("UNAVAILABLE", "STORE_UNAVAILABLE"):
        client.get("away")

    own_cluster.start()
    wait_until(lambda: client.health_status() == SERVING, "SERVING again", limit=15)
    wait_until(lambda: server.http("/readyz")[0] == 200, "/readyz 200", limit=5)
    assert client.register("away").created, "the refused call had done nothing, or is replayed"
    server.stop()


def test_a_frozen_store_does_not_hold_calls_beyond_their_deadline(store, server):
    client = server.client()
    client.register("before")
    with store.locked():
        begun = time.monotonic()
        with refused("DEADLINE_EXCEEDED"):
            client.call("Register", timeout=0.4, operation_key="slow", action_type="send_email", payload_json="{}")
        assert time.monotonic() - begun < 2
    answer = client.register("slow", "{}", action="send_email")
    assert answer.operation.version == 1, "there or not there, the repeat is the same operation"


def test_reads_go_on_while_another_caller_waits_for_the_store(store, server):
    client = server.client()
    client.register("first")
    with store.locked():
        waiting = threading.Thread(target=lambda: client.register("second"), daemon=True)
        waiting.start()
        assert client.get("first").operation.operation_key == "first"
    waiting.join(10)
    assert not waiting.is_alive()
    assert client.operation("second").version == 1
