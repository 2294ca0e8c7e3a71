"""What the store's surroundings do to it: defaults that would lose commits, files that are taken away, answers
that would be too large for a client."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time

import pytest
from harness import PostgresStore, SqliteStore, psql, wait_until
from ledger_client import Ledger, new_id, refused


@pytest.fixture
def sqlite_store(folder):
    where = folder / f"db-{new_id()[:8]}"
    where.mkdir()
    return SqliteStore(where)


def test_synchronous_commit_off_by_default_is_overruled(start, own_cluster):
    cluster = own_cluster
    store = PostgresStore(cluster.url)
    psql(store.url, f"ALTER DATABASE {store.name} SET synchronous_commit = off")
    # A crash right after the answer would lose it, if the server were not told to wait for the disk: so many
    # sessions tell, and a slow log writer makes sure that nothing else saves them.
    cluster.stop("fast")
    (cluster.data / "postgresql.auto.conf").open("a").write("wal_writer_delay = 10s\n")
    cluster.start()
    server = start(store)
    with Ledger(server.address) as ledger:
        for number in range(20):
            assert ledger.register(f"k{number}").created
        cluster.stop("immediate")
        cluster.start()
        wait_until(lambda: ledger.health_status() == 1, "SERVING")
        for number in range(20):
            assert ledger.operation(f"k{number}").version == 1


def test_a_moved_sqlite_file_takes_no_more_writes(start, sqlite_store):
    server = start(sqlite_store)
    with Ledger(server.address) as ledger:
        assert ledger.register("before").created
        moved = sqlite_store.path.with_suffix(".moved")
        sqlite_store.path.rename(moved)
        with refused("UNAVAILABLE", "STORE_UNAVAILABLE"):
            ledger.register("lost", timeout=5)
        wait_until(lambda: ledger.health_status() != 1, "NOT_SERVING")
        moved.rename(sqlite_store.path)
        wait_until(lambda: ledger.health_status() == 1, "SERVING")
        assert ledger.register("after").created
        assert ledger.operation("before").version == 1


def test_the_sqlite_file_is_its_owners_alone(start, sqlite_store):
    server = start(sqlite_store)
    with Ledger(server.address) as ledger:
        ledger.register("k")
    for path in sqlite_store.path.parent.glob("opledger.db*"):
        assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path


def test_a_device_is_no_database(start, sqlite_store):
    sqlite_store.url = "sqlite:///dev/null"
    server = start(sqlite_store, wait=False)
    assert server.wait_exit(10) not in (0, 101)
    assert "no regular file" in server.log.read_text()


def test_a_page_of_large_operations_fits_a_clients_limit(ledger, key):
    payload = {"text": "x" * 200_000}
    for number in range(24):
        ledger.register(f"{key}/{number}", payload, labels={"run": "large"}, store_payload=True)
    found, token = [], ""
    while True:
        page = ledger.list(labels={"run": "large"}, page_token=token)
        assert len(page.SerializeToString()) < 4 * 1024 * 1024
        found += [operation.operation_key for operation in page.operations]
        token = page.next_page_token
        if not token:
            break
    assert len(found) == len(set(found)) == 24


def test_a_waiting_call_answers_before_its_deadline(ledger, key):
    ledger.register(key)
    begun = time.monotonic()
    answer = ledger.get(key, wait=30, timeout=3.0)
    assert answer.operation.version == 1 and time.monotonic() - begun > 2


def test_waiting_calls_do_not_hold_up_the_end(start, store):
    server = start(store)
    with Ledger(server.address) as ledger:
        ledger.register("k")
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(ledger.get("k", wait=60, timeout=60)))
        waiting.start()
        wait_until(lambda: "opledger_rpc_in_flight 1" in server.http("/metrics")[1], "the waiting call")
        begun = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        assert time.monotonic() - begun < 5
        waiting.join(5)
        assert answers and answers[0].operation.operation_key == "k"


def test_deceptive_characters_in_keys(ledger):
    for character in ("\u202e", "\u200b", "\u2066", "\ufeff"):
        with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            ledger.register(f"pay{character}{new_id()}")
