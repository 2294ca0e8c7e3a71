"""Fixtures. A test takes `ledger` for a server shared by many tests, or `start` for servers of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Callable, Iterator

import pytest

import stubs
from harness import BINARY, PostgresStore, Server, SqliteStore, Store, cannot
from ledger_client import Ledger, new_id
from pgcluster import Cluster, bin_dir

os.environ["OPLEDGER_TEST_STUBS"] = stubs.FOLDER  # for helper processes

KINDS = ("sqlite", "postgres")


def pytest_configure(config: pytest.Config) -> None:
    if not BINARY.exists() and not config.option.collectonly:
        pytest.exit(f"{BINARY} is missing: cargo build --features failpoints, or set OPLEDGER_TEST_BINARY", 2)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for server in Server.started:
            report.sections.append(("server log", server.log_tail()))


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A temporary folder with a short path (for sockets)."""
    path = Path(tempfile.mkdtemp(prefix="opledger-acceptance-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url(folder: Path) -> Iterator[str]:
    given = os.environ.get("OPLEDGER_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    if bin_dir() is None:
        cannot("PostgreSQL is not installed and OPLEDGER_TEST_POSTGRES_URL is not set")
    cluster = Cluster(folder / "pg").create().start()
    yield cluster.url
    cluster.destroy()


@pytest.fixture
def own_cluster(folder: Path) -> Iterator[Cluster]:
    """A PostgreSQL that the test may stop and crash."""
    if bin_dir() is None:
        cannot("PostgreSQL's server programs are not installed")
    cluster = Cluster(folder / f"pg-{new_id()[:8]}").create().start()
    yield cluster
    cluster.destroy()


class Stores:
    """Makes empty databases of both kinds."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path):
        self._request, self._folder, self.made = request, folder, []

    def new(self, kind: str) -> Store:
        if kind == "sqlite":
            path = self._folder / f"db-{new_id()[:8]}"
            path.mkdir()
            store: Store = SqliteStore(path)
        else:
            store = PostgresStore(self._request.getfixturevalue("postgres_url"))
        self.made.append(store)
        return store

    def drop(self) -> None:
        # A cluster of our own goes as a whole, and may have gone already.
        if os.environ.get("OPLEDGER_TEST_POSTGRES_URL"):
            for store in self.made:
                store.drop()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Store]:
    """An empty database."""
    stores = Stores(request, folder)
    if request.param == "postgres":
        request.getfixturevalue("postgres_url")
    yield stores.new(request.param)
    stores.drop()


Start = Callable[..., Server]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """start(store, policy=…, env=…, args=…): a server of the test's own, SERVING unless wait=False."""
    made: list[Server] = []

    def make(store: Store, *, wait: bool = True, **settings) -> Server:
        where = folder / f"server-{new_id()[:8]}"
        where.mkdir()
        server = Server(store, where, **settings)
        made.append(server)
        server.spawn()
        if wait:
            server.wait_serving()
        return server

    yield make
    for server in made:
        server.dispose()


@pytest.fixture
def server(store: Store, start: Start) -> Server:
    """A server of the test's own on an empty database, with the test policy."""
    return start(store)


class Shared:
    """One server of each kind for all the tests that leave it as it was."""

    def __init__(self, stores: Stores, folder: Path):
        self._stores, self._folder, self._servers = stores, folder, {}

    def __getitem__(self, kind: str) -> Server:
        if kind not in self._servers:
            where = self._folder / f"shared-{kind}"
            where.mkdir()
            server = Server(self._stores.new(kind), where, env={"OPLEDGER_LOG_LEVEL": "debug"})
            self._servers[kind] = server  # also where it does not start: that is said once, and at once
            server.start()
        server = self._servers[kind]
        assert server.alive(), f"the shared server is dead\n{server.log_tail()}"
        return server

    def close(self) -> None:
        for server in self._servers.values():
            server.dispose()


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest, folder: Path) -> Iterator[Shared]:
    stores = Stores(request, folder)
    shared = Shared(stores, folder)
    yield shared
    shared.close()
    stores.drop()


@pytest.fixture(params=KINDS)
def shared_server(request: pytest.FixtureRequest, shared: Shared) -> Server:
    return shared[request.param]


@pytest.fixture
def ledger(shared_server: Server) -> Iterator[Ledger]:
    """A client of the shared server, once for each kind of store."""
    with Ledger(shared_server.address) as client:
        yield client


@pytest.fixture
def both(shared: Shared) -> Iterator[tuple[Ledger, Ledger]]:
    """Clients of the two shared servers, SQLite first: for tests that compare them."""
    with Ledger(shared["sqlite"].address) as first, Ledger(shared["postgres"].address) as second:
        yield first, second


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """An operation key that no other test has."""
    name = request.node.originalname.removeprefix("test_")[:80]
    return f"{name}:{new_id()}"
