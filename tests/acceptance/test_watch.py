"""Watch: the change feed of a namespace, and of one key, over replicas and restarts."""

from __future__ import annotations

import threading
import time

import grpc
import pytest
from harness import PostgresStore, Server, wait_until
from ledger_client import Ledger, event_names, invalid, new_id, options, pb, refused


class Watcher:
    """Collects a stream in the background."""

    def __init__(self, ledger: Ledger, after: int = 0, **fields):
        request = pb.WatchRequest(namespace=ledger.namespace, after_sequence=after, **fields)
        self.events: list[pb.Event] = []
        self.heartbeats: list[int] = []
        self.error: grpc.RpcError | None = None
        self.ended = threading.Event()
        self._stream = ledger.stub.Watch(request, timeout=120)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for message in self._stream:
                if message.WhichOneof("message") == "event":
                    self.events.append(message.event)
                else:
                    self.heartbeats.append(message.heartbeat_sequence)
        except grpc.RpcError as error:
            self.error = error
        self.ended.set()

    @property
    def resume(self) -> int:
        """Where to go on after a break."""
        return max([0, *self.heartbeats, *(event.sequence for event in self.events)])

    def cancel(self) -> None:
        self._stream.cancel()


def table(store) -> list[tuple[int, str, int]]:
    """What the database holds: sequence, key, version."""
    rows = store.query(
        "SELECT e.sequence, o.operation_key, e.version FROM agent_operation_events e "
        "JOIN agent_operations o ON o.operation_id = e.operation_id ORDER BY e.sequence"
    )
    return [(int(sequence), key, int(version)) for sequence, key, version in rows]


def seen(events: list[pb.Event]) -> list[tuple[int, str, int]]:
    return [(event.sequence, event.operation_key, event.version) for event in events]


def work(ledger: Ledger, key: str) -> None:
    token = ledger.register(key, claim=options(lease=60)).lease.token
    ledger.succeed(key, token, "e1")


def test_a_namespace_over_two_replicas_and_their_restarts(store, start):
    replicas: list[Server] = [start(store), start(store)]
    clients = [replica.client() for replica in replicas]
    watcher = Watcher(clients[0])
    wait_until(lambda: watcher.heartbeats, "caught up with nothing")
    for n in range(20):
        work(clients[n % 2], f"k{n}")
    wait_until(lambda: len(watcher.events) >= 60, "the events of both replicas")
    assert seen(watcher.events) == table(store)

    # The replica goes down: the stream says where to go on, and does not hold the end up.
    begun = time.monotonic()
    replicas[0].signal(15)
    assert watcher.ended.wait(5)
    assert replicas[0].wait_exit() == 0
    assert time.monotonic() - begun < 5
    with refused("UNAVAILABLE", "SHUTTING_DOWN") as refusal:
        raise watcher.error
    resume = int(refusal.metadata["resumeSequence"])
    assert resume == watcher.resume

    work(clients[1], "meanwhile")
    second = Watcher(clients[1], resume)
    wait_until(lambda: len(second.events) >= 3, "what happened since, from the other replica")
    second.cancel()
    replicas[0].start()
    with Ledger(replicas[0].address) as again:
        third = Watcher(again, second.resume)
        work(again, "afterwards")
        wait_until(lambda: len(third.events) >= 3, "what happened since, from the new one")
        third.cancel()
    assert seen([*watcher.events, *second.events, *third.events]) == table(store)


def test_a_server_that_is_killed_loses_no_event(store, start):
    server = start(store)
    client = server.client()
    watcher = Watcher(client)
    for n in range(5):
        work(client, f"k{n}")
    wait_until(lambda: len(watcher.events) >= 4, "some events")
    server.kill()
    assert watcher.ended.wait(10)
    server.start()
    client.connect()
    rest = Watcher(client, watcher.resume)
    work(client, "last")
    last = ("last", pb.EVENT_TYPE_SUCCEEDED)
    wait_until(lambda: rest.events and (rest.events[-1].operation_key, rest.events[-1].type) == last, "the last event")
    assert seen([*watcher.events, *rest.events]) == table(store)


def test_events_go_on_over_a_restart_of_postgres(own_cluster, start):
    store = PostgresStore(own_cluster.url)
    server = start(store)
    client = server.client()
    watcher = Watcher(client)
    work(client, "before")
    wait_until(lambda: len(watcher.events) >= 3, "the events before")
    own_cluster.stop("immediate")
    own_cluster.start()
    wait_until(lambda: work(client, f"after-{new_id()}") is None, "work after the restart", limit=30)
    if watcher.ended.is_set():
        with refused("UNAVAILABLE", "STORE_UNAVAILABLE") as refusal:
            raise watcher.error
        assert int(refusal.metadata["resumeSequence"]) == watcher.resume
    rest = Watcher(client, watcher.resume)
    watcher.cancel()
    expected = table(store)
    wait_until(lambda: {*seen(watcher.events), *seen(rest.events)} >= {*expected}, "all events")
    assert sorted({*seen(watcher.events), *seen(rest.events)}) == expected


def test_one_key_until_it_is_finished(ledger, key):
    token = ledger.register(key, claim=options(lease=60)).lease.token
    watcher = Watcher(ledger, operation_key=key)
    wait_until(lambda: watcher.heartbeats, "caught up")
    ledger.renew(key, token)
    ledger.succeed(key, token, "e1")
    assert watcher.ended.wait(10) and watcher.error is None
    assert event_names(watcher.events) == ["registered", "claimed", "renewed", "succeeded"]
    again = Watcher(ledger, watcher.events[1].sequence, operation_key=key)
    assert again.ended.wait(10) and again.error is None
    assert event_names(again.events) == ["renewed", "succeeded"]


def test_faulty_requests(ledger):
    def ask(**fields):
        return next(ledger.call("Watch", **fields))

    with invalid("after_sequence", "operation_key", "action_types"):
        ask(after_sequence=-1, operation_key="", action_types=["ok", "not ok"])
    with refused("NOT_FOUND", "OPERATION_NOT_FOUND"):
        ask(operation_key=new_id())


def test_only_the_action_types_asked_for(server):
    client = server.client()
    client.register("a", action="create_payment")
    client.register("b", action="send_email")
    watcher = Watcher(client, action_types=["send_email"])
    wait_until(lambda: watcher.heartbeats, "caught up")
    assert [event.operation_key for event in watcher.events] == ["b"]
    watcher.cancel()


@pytest.mark.timeout(60)
def test_idle_watchers_get_signs_of_life(server):
    client = server.client()
    work(client, "k")
    watcher = Watcher(client)
    wait_until(lambda: len(watcher.heartbeats) >= 2, "a second heartbeat", limit=15)
    assert set(watcher.heartbeats) == {watcher.events[-1].sequence}
    watcher.cancel()
