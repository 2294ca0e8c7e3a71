"""Starts and stops the real binary, and the two kinds of database under it."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, TypeVar
from urllib.parse import urlsplit

import grpc
import pytest
from ledger_client import Ledger
from pgcluster import free_port

REPO = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("OPLEDGER_TEST_BINARY") or REPO / "target/debug/opledger").resolve()
SERVING, NOT_SERVING = 1, 2  # grpc.health.v1
START_LIMIT = 30.0
BEFORE_COMMIT, AFTER_COMMIT = 17, 18  # exit codes of the two failpoints

POLICY = """\
tool_policy:
  create_payment:
    operation_key: required
    retry:
      reuse_operation_key: true
      on_timeout: reconcile_before_retry
    terminal_states:
      - succeeded
      - failed_final
    unknown_after_seconds: 900
    on_unresolved: require_human_review
  send_email:
    operation_key: required
    retry:
      reuse_operation_key: true
      on_timeout: reconcile_before_retry
  same_key:            # the provider honours idempotency keys
    retry:
      on_timeout: retry_same_key
    provider:
      idempotency_key_ttl_seconds: 86400
    max_attempts: 1000
  person_first:
    retry:
      on_timeout: require_human_review
  sure_lookup:         # an absence may be believed, a second after the attempt
    provider:
      lookup: authoritative
      absence_settle_seconds: 1
  minor_units:
    payload:
      reject_fractions: true
  small:
    payload:
      max_bytes: 200
    result:
      max_bytes: 100
  redacted:
    result:
      redact:
        - /card/number
"""

T = TypeVar("T")


def seeded(name: str) -> random.Random:
    """A random source whose seed is printed, and taken from OPLEDGER_TEST_SEED where that is set."""
    seed = int(os.environ.get("OPLEDGER_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"{name}: OPLEDGER_TEST_SEED={seed}")
    return random.Random(seed)


def wait_until(condition: Callable[[], T], what: str, limit: float = 15.0, every: float = 0.02) -> T:
    """The first true value of `condition`, which may also raise a gRPC error: that counts as not yet."""
    end = time.monotonic() + limit
    last: object = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = value
        except (grpc.RpcError, OSError) as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit} s for {what}; last: {last!r}")
        time.sleep(every)


def cannot(why: str) -> None:
    """Skips, but never in CI: what cannot run there is a failure."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def clean_env(**extra: str) -> dict[str, str]:
    """The environment without settings that the caller's shell might have."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPLEDGER_") and k not in ("RUST_LOG", "FAILPOINTS")}
    return {**env, **extra}


# --- databases ---------------------------------------------------------------------------------


class SqliteStore:
    kind = "sqlite"

    def __init__(self, folder: Path):
        self.path = folder / "opledger.db"
        self.url = f"sqlite://{self.path}"

    def query(self, sql: str) -> list[tuple[str, ...]]:
        """Rows with every value as text, NULL as the empty text: the same from both stores."""
        with sqlite3.connect(self.path, timeout=10, isolation_level=None) as db:
            rows = [tuple("" if v is None else str(v) for v in row) for row in db.execute(sql)]
        db.close()
        return rows

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else can write meanwhile."""
        db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("ROLLBACK")
        finally:
            db.close()

    def drop(self) -> None:
        pass  # the folder is temporary


class PostgresStore:
    kind = "postgres"

    def __init__(self, superuser_url: str):
        self.admin_url = superuser_url
        self.name = f"acceptance_{uuid.uuid4().hex}"
        psql(superuser_url, f"CREATE DATABASE {self.name}")
        parts = urlsplit(superuser_url)
        self.url = parts._replace(path=f"/{self.name}").geturl()

    def query(self, sql: str) -> list[tuple[str, ...]]:
        return psql(self.url, sql)

    @contextmanager
    def locked(self) -> Iterator[None]:
        command = [*_PSQL, "-d", self.url]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert holder.stdin and holder.stdout
            holder.stdin.write(
                "BEGIN; LOCK TABLE agent_operations, agent_operation_events IN EXCLUSIVE MODE; SELECT 'locked';\n"
            )
            holder.stdin.flush()
            while holder.stdout.readline().strip() != "locked":
                assert holder.poll() is None, "psql ended"
            yield
        finally:
            holder.communicate("ROLLBACK;\n\\q\n", timeout=10)

    def drop(self) -> None:
        psql(self.admin_url, f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


Store = SqliteStore | PostgresStore
_PSQL = ["psql", "-X", "-q", "-A", "-t", "-F", "\x1f", "-R", "\x1e", "-v", "ON_ERROR_STOP=1"]


def psql(url: str, sql: str) -> list[tuple[str, ...]]:
    done = subprocess.run(
        [*_PSQL, "-d", url, "-c", sql], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"psql: {done.stderr}"
    text = done.stdout.removesuffix("\n")
    return [tuple(row.split("\x1f")) for row in text.split("\x1e")] if text else []


def rows_of(store: Store, key: str) -> list[tuple[str, ...]]:
    """The README's first SELECT."""
    quoted = key.replace("'", "''")
    return store.query(
        "SELECT operation_key, status, attempt_count, external_id FROM agent_operations "
        f"WHERE operation_key = '{quoted}'"
    )


def assert_no_duplicates(store: Store) -> None:
    """The README's second SELECT."""
    duplicates = store.query(
        "SELECT operation_key, COUNT(*) FROM agent_operations GROUP BY namespace, operation_key HAVING COUNT(*) > 1"
    )
    assert duplicates == []


# --- the server --------------------------------------------------------------------------------


class Server:
    """One `opledger serve`. Start it from the main thread. Ports are chosen once, so that a restarted server is found again."""

    started: list["Server"] = []  # all that live now, for the logs of a failed test

    def __init__(self, store: Store, folder: Path, policy: str = POLICY, env: dict | None = None, args=(), port=None):
        self.store, self.folder = store, folder
        self.port, self.admin_port = port or free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.policy = folder / f"policy-{self.port}.yaml"
        self.policy.write_text(policy)
        self.log = folder / f"server-{self.port}.log"
        self.env, self.args = dict(env or {}), list(args)
        self.process: subprocess.Popen | None = None
        self._clients: list[Ledger] = []

    def command(self) -> list[str]:
        # The kernel ends it should this process die first: nothing is left behind.
        return [
            "setpriv", "--pdeathsig", "KILL",
            str(BINARY), "serve",
            "--database-url", self.store.url,
            "--listen", self.address,
            "--admin-listen", f"127.0.0.1:{self.admin_port}",
            "--policy", str(self.policy),
            *self.args,
        ]  # fmt: skip

    def spawn(self, **env: str) -> "Server":
        """Starts the process and waits for nothing."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        with self.log.open("ab") as log:
            log.write(f"--- start {env}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=clean_env(**{"RUST_BACKTRACE": "1", **self.env, **env}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if self not in Server.started:
            Server.started.append(self)
        return self

    def start(self, **env: str) -> "Server":
        """Starts it and waits until its health is SERVING."""
        self.spawn(**env)
        self.wait_serving()
        return self

    def wait_serving(self, limit: float = START_LIMIT) -> None:
        assert self.process
        with Ledger(self.address) as probe:

            def serving() -> bool:
                code = self.process.poll()
                if code is not None:
                    raise AssertionError(f"the server ended with {code}\n{self.log_tail()}")
                return probe.health_status(timeout=1.0) == SERVING

            wait_until(serving, "SERVING", limit)

    def client(self, namespace: str = "", timeout: float = 10.0) -> Ledger:
        client = Ledger(self.address, namespace, timeout)
        self._clients.append(client)
        return client

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    def wait_exit(self, limit: float = 15.0) -> int:
        """Its exit code (negative: ended by that signal)."""
        assert self.process
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server still runs after {limit} s\n{self.log_tail()}") from None

    def stop(self) -> None:
        """The normal end: SIGTERM, exit code 0."""
        self.close_clients()
        self.signal(signal.SIGTERM)
        assert self.wait_exit() == 0, self.log_tail()

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        self.wait_exit()

    def dispose(self) -> None:
        self.close_clients()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        if self in Server.started:
            Server.started.remove(self)

    def close_clients(self) -> None:
        while self._clients:
            self._clients.pop().close()

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def http(self, path: str) -> tuple[int, str]:
        """Asks the admin port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join([f"[{self.log.name}]", *self.log_text().splitlines()[-lines:]])


def opledger(*args: str, input: str | bytes | None = None, timeout: float = 30, **env: str):
    """Runs one short command of the binary; gives back code, stdout and stderr."""
    data = input.encode() if isinstance(input, str) else input
    with tempfile.TemporaryDirectory(prefix="opledger-cli-") as folder:
        return subprocess.run(
            [str(BINARY), *args],
            input=data if data is not None else b"",
            capture_output=True,
            cwd=folder,
            env=clean_env(**env),
            timeout=timeout,
        )


def grpcurl() -> str | None:
    local = REPO / "target/tools/grpcurl"
    return os.environ.get("OPLEDGER_TEST_GRPCURL") or (str(local) if local.exists() else shutil.which("grpcurl"))


def cli(server: Server, *args: str):
    """A command of the binary that talks to this server."""
    return opledger(*args, "--server", f"http://{server.address}")
