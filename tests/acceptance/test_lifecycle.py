"""Start, health, drain and end of the process; several replicas; the schema."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2
from harness import (
    NOT_SERVING, SERVING, Server, assert_no_duplicates, free_port, opledger, rows_of, wait_until,
)  # fmt: skip
from ledger_client import EXECUTE, Ledger, check_history, options, pb, refused

# --- health --------------------------------------------------------------------------------------


def test_health_of_the_whole_and_of_the_ledger(ledger):
    assert ledger.health_status("") == SERVING
    assert ledger.health_status("opledger.v1.Ledger") == SERVING
    with pytest.raises(grpc.RpcError) as unknown:
        ledger.health_status("no.such.Service")
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


def test_the_admin_port(shared_server):
    assert shared_server.http("/livez")[0] == 200
    assert shared_server.http("/readyz")[0] == 200
    status, metrics = shared_server.http("/metrics")
    assert status == 200 and "opledger_" in metrics
    assert shared_server.http("/no-such-page")[0] == 404


def test_the_start_says_in_five_lines_where_and_what(store, start):
    server = start(store, env={"OPLEDGER_LOG_LEVEL": "warn"})
    lines = [line for line in server.log_text().splitlines() if not line.startswith("--- start")]
    text = "\n".join(lines)
    assert server.address in text
    assert server.store.kind in text.lower()
    assert "grpcurl" in text, "a line to try"
    assert sum(bool(line.strip()) for line in lines) <= 5, text


# --- the end -------------------------------------------------------------------------------------


def watch_health(client: Ledger) -> tuple[list[int], threading.Event]:
    """Collects the statuses of a health stream; the event is set at NOT_SERVING or the stream's end."""
    seen: list[int] = []
    turned = threading.Event()

    def run() -> None:
        try:
            for answer in client.health.Watch(health_pb2.HealthCheckRequest(service=""), timeout=30):
                seen.append(answer.status)
                if answer.status == NOT_SERVING:
                    turned.set()
        except grpc.RpcError:
            pass
        turned.set()

    threading.Thread(target=run, daemon=True).start()
    wait_until(lambda: seen, "the first status")
    return seen, turned


def test_sigterm_finishes_what_is_in_flight(store, server):
    client = server.client()
    seen, turned = watch_health(client)
    client.register("before")
    with ThreadPoolExecutor(1) as pool:
        with store.locked():
            call = pool.submit(lambda: client.register("in flight"))
            time.sleep(0.2)  # it is with the server: nothing shows that from outside
            assert not call.done()
            server.signal(signal.SIGTERM)
            assert turned.wait(5)
            assert seen[-1] == NOT_SERVING, "health says so first"
            assert server.alive(), "it waits for the call"
            wait_until(lambda: refuses_connections(server), "no new connections", limit=5)
        assert call.result(15).created
    assert server.wait_exit(12) == 0
    assert rows_of(store, "in flight") == [("in flight", "pending", "0", "")]


def refuses_connections(server: Server) -> bool:
    with Ledger(server.address) as late:
        try:
            return late.health_status(timeout=0.5) != SERVING
        except grpc.RpcError as error:
            return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_idle_connections_and_open_streams_do_not_hold_the_end_up(server):
    clients = [server.client() for _ in range(5)]
    streams = [watch_health(client) for client in clients]
    begun = time.monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait_exit(5) == 0
    assert time.monotonic() - begun < 3
    assert all(turned.wait(3) for _, turned in streams)


def test_a_call_that_waits_for_an_outcome_does_not_hold_the_end_up(server):
    client = server.client()
    client.register("k", claim=options(lease=60))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(lambda: client.get("k", wait=9))
        time.sleep(0.2)  # it is with the server
        server.signal(signal.SIGTERM)
        assert server.wait_exit(12) == 0
        assert call.result(1).operation.operation_key == "k", "answered, not cut"


def test_the_drain_has_a_limit(store, start):
    server = start(store, args=["--drain-timeout", "1s"])
    client = server.client(timeout=20)
    client.register("before")
    with store.locked(), ThreadPoolExecutor(1) as pool:
        call = pool.submit(lambda: client.register("stuck"))
        time.sleep(0.2)
        begun = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait_exit(6) == 0
        assert time.monotonic() - begun < 4
        assert isinstance(call.exception(5), grpc.RpcError)


def test_a_second_signal_ends_it_at_once(store, server):
    client = server.client()
    seen, turned = watch_health(client)
    client.register("before")
    with store.locked(), ThreadPoolExecutor(1) as pool:
        call = pool.submit(lambda: client.register("stuck"))
        time.sleep(0.2)
        server.signal(signal.SIGTERM)
        assert turned.wait(5)
        begun = time.monotonic()
        server.signal(signal.SIGTERM)
        server.wait_exit(3)
        assert time.monotonic() - begun < 1.5
        assert isinstance(call.exception(5), grpc.RpcError)


def test_ctrl_c_ends_it_as_sigterm_does(server):
    server.close_clients()
    server.signal(signal.SIGINT)
    assert server.wait_exit(5) == 0


# --- refused starts ------------------------------------------------------------------------------


def refused_start(server: Server) -> str:
    """The process ends by itself, not with 0, and says why."""
    code = server.wait_exit(20)
    assert code not in (0, 101) and code > 0, f"exit code {code}\n{server.log_tail()}"
    assert "panicked" not in server.log_text()
    return server.log_text()


@pytest.mark.parametrize("flag", ["--listen", "--admin-listen"])
@pytest.mark.parametrize("address", ["0.0.0.0", "[::]"])
def test_it_binds_to_loopback_only_unless_told(flag, address):
    other = "--admin-listen" if flag == "--listen" else "--listen"
    done = opledger(
        "serve", "--database-url", "sqlite::memory:", flag, f"{address}:{free_port()}", other,
        f"127.0.0.1:{free_port()}", timeout=20,
    )  # fmt: skip
    assert done.returncode not in (0, 101)
    text = (done.stdout + done.stderr).decode()
    assert "--insecure" in text and flag in text


def test_a_port_that_is_taken_is_said(shared, store, start):
    taken = shared[store.kind].port
    assert str(taken) in refused_start(start(store, wait=False, port=taken))


def test_a_database_that_cannot_be_reached_is_said(tmp_path):
    done = opledger(
        "serve", "--database-url", f"postgres://x:Zk7planted@127.0.0.1:{free_port()}/x",
        "--listen", f"127.0.0.1:{free_port()}", "--admin-listen", f"127.0.0.1:{free_port()}", timeout=60,
    )  # fmt: skip
    text = (done.stdout + done.stderr).decode()
    assert done.returncode not in (0, 101) and text
    assert "Zk7planted" not in text, "a password is not repeated"


def test_an_unknown_setting_is_said():
    done = opledger("serve", "--no-such-flag")
    assert done.returncode == 2 and b"--no-such-flag" in done.stderr


def test_environment_and_flags(store, folder):
    """Flags win over the environment."""
    server = Server(store, folder)
    command = server.command()
    at = command.index("--database-url")
    database_url = command[at + 1]
    del command[at : at + 2]
    server.command = lambda: command  # type: ignore[method-assign]
    try:
        server.start(OPLEDGER_DATABASE_URL=database_url, OPLEDGER_LISTEN="127.0.0.1:1")
        assert server.client().register("k").created
        assert rows_of(store, "k")
        server.stop()
    finally:
        server.dispose()


# --- schema and replicas -------------------------------------------------------------------------


def test_replicas_start_at_once_on_an_empty_database(store, start):
    replicas = [start(store, wait=False) for _ in range(4)]
    for replica in replicas:
        replica.wait_serving()
    clients = [replica.client() for replica in replicas]
    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(lambda client: client.register("k", claim=options(lease=60)), clients))
    assert sum(answer.created for answer in answers) == 1
    assert sum(answer.next_step == EXECUTE for answer in answers) == 1
    assert len(check_history(clients[0], "k")) == 2
    migrations = store.query("SELECT version, COUNT(*) FROM _sqlx_migrations GROUP BY version")
    assert migrations and all(count == "1" for _, count in migrations)
    assert_no_duplicates(store)
    for replica in replicas:
        replica.stop()


def test_a_restart_changes_nothing(store, server):
    before = server.client().register("k", claim=options(lease=60)).operation
    server.stop()
    server.start()
    assert server.client().operation("k") == before


def test_migrate_prepares_the_database_alone(store):
    for _ in range(2):
        done = opledger("migrate", "--database-url", store.url, timeout=30)
        assert done.returncode == 0, done.stderr
    assert rows_of(store, "k") == []


def test_a_newer_schema_is_refused(store, server, start):
    server.stop()
    columns = "(version, description, installed_on, success, checksum, execution_time)"
    blob = "X'00'" if store.kind == "sqlite" else "'\\x00'"
    true = "1" if store.kind == "sqlite" else "true"
    store.query(f"INSERT INTO _sqlx_migrations {columns} VALUES "
                f"(99999999999999, 'from the future', CURRENT_TIMESTAMP, {true}, {blob}, 0)")  # fmt: skip
    text = refused_start(start(store, wait=False))
    assert "newer" in text.lower(), text
    migrate = opledger("migrate", "--database-url", store.url)
    assert migrate.returncode not in (0, 101)
    assert "newer" in (migrate.stdout + migrate.stderr).decode().lower()


def test_a_changed_schema_is_refused(store, server, start):
    server.stop()
    blob = "X'00'" if store.kind == "sqlite" else "'\\x00'"
    store.query(f"UPDATE _sqlx_migrations SET checksum = {blob}")
    text = refused_start(start(store, wait=False)).lower()
    assert "migration" in text or "schema" in text


def test_a_client_that_goes_away_leaves_no_half_change(store, server):
    """Cancelled calls are done wholly or not at all, and the service goes on."""
    client = server.client()
    for n in range(60):
        call = client.stub.Register.future(
            pb.RegisterRequest(operation_key=f"k{n}", action_type="send_email", payload_json="{}", claim=options()),
            timeout=5,
        )
        if n % 2:
            time.sleep(0.001)
        call.cancel()
    assert client.register("after").created
    for (key,) in store.query("SELECT operation_key FROM agent_operations WHERE operation_key <> 'after'"):
        assert [e.version for e in check_history(client, key)] == [1, 2]


def test_the_store_goes_on_after_a_call_that_gave_up(store, server):
    client = server.client()
    client.register("before")
    with store.locked():
        for n in range(20):
            with refused("DEADLINE_EXCEEDED"):
                client.call(
                    "Register", timeout=0.05, operation_key=f"k{n}", action_type="send_email", payload_json="{}"
                )
    begun = time.monotonic()
    assert client.register("after").created
    assert time.monotonic() - begun < 5, "no connection is stuck"
