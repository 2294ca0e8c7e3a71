"""What the README prints, works: its tour, its statements and its client, against the server that it starts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import uuid
from pathlib import Path
from typing import Iterator

import pytest
from harness import BINARY, REPO, Server, SqliteStore, cannot, grpcurl
from ledger_client import RECONCILE, STOP, USE_RESULT

README = (REPO / "README.md").read_text()
TOUR = re.findall(r"<!-- tour -->\n```sh\n(.*?)```\n```text\n(.*?)```", README, re.S)
SELECTS = re.search(r"<!-- select -->\n```sql\n(.*?)```", README, re.S)[1].strip().splitlines()
LOOP = re.search(r"<!-- loop -->\n```python\n(.*?)```", README, re.S)[1]
CARGO = "cargo run --release -- "
SERVE = [line.split("#")[0].strip() for line in README.splitlines() if line.startswith(CARGO + "serve")]


class AsTold(Server):
    """Started by a line of the README, but for the ports and the address of the database."""

    def __init__(self, store, folder: Path, line: str):
        super().__init__(store, folder)
        line = re.sub(r"postgres://\S+", store.url, line)
        self.words = shlex.split(line.removeprefix(CARGO))
        self.env = {"OPLEDGER_LISTEN": self.address, "OPLEDGER_ADMIN_LISTEN": f"127.0.0.1:{self.admin_port}"}

    def command(self) -> list[str]:
        return ["setpriv", "--pdeathsig", "KILL", str(BINARY), *self.words]


@pytest.fixture
def told(store, folder: Path) -> Iterator[AsTold]:
    """The server as the README starts it, on the database of its kind."""
    on_sqlite, on_postgres = SERVE
    assert "--database-url" not in on_sqlite and "--database-url" in on_postgres
    if store.kind == "sqlite":
        where = store.path.parent
        server = AsTold(SqliteStore(where), where, on_sqlite)
    else:
        where = folder / f"readme-{uuid.uuid4().hex[:8]}"
        where.mkdir()
        server = AsTold(store, where, on_postgres)
    yield server.start()
    server.dispose()


def test_the_tour(told: AsTold):
    program = grpcurl()
    if program is None:
        cannot("grpcurl is not installed (tests/run does it)")
    assert len(TOUR) == 5, "Register, Claim, Complete, Get, a conflict"
    end = "--- end of a step ---"
    script = "".join(f"{commands}\necho '{end}'\n" for commands, _ in TOUR)
    script = script.replace("127.0.0.1:50051", told.address)
    path = f"{Path(program).resolve().parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"], capture_output=True, text=True, timeout=60, env={"PATH": path}
    )
    outputs = done.stdout.split(end)[: len(TOUR)]
    assert len(outputs) == len(TOUR), done.stdout
    for (commands, expected), output in zip(TOUR, outputs):
        lines = [line.strip() for line in output.splitlines()]
        for line in expected.splitlines():
            # A last member has no comma where the shortened answer may have one, and the other way round.
            found = any(line.strip().rstrip(",") == shown.rstrip(",") for shown in lines)
            assert found, f"{commands}\nexpected the line\n{line}\nin\n{output}"
    assert "99.90" not in outputs[-1], "a conflict quotes no value"

    operation, duplicates = SELECTS
    assert told.store.query(operation) == [("order-7/payment", "succeeded", "1", "pay_1")]
    assert told.store.query(duplicates) == []


class Provider:
    """Pays once for each call; `fate` says what becomes of the answer."""

    class Declined(Exception):
        code = "card_declined"

    def __init__(self):
        self.paid: list[str] = []
        self.fate: str = "answer"

    def pay(self, request: dict, idempotency_key: str, timeout: float) -> str:
        assert 0 < timeout < 30
        if self.fate == "decline":
            raise self.Declined
        if self.fate == "vanish":
            raise ConnectionError
        self.paid.append(idempotency_key)
        if self.fate == "lose":
            raise TimeoutError
        return f"pay_{len(self.paid)}"

    def find(self, key: str) -> str | None:
        return f"pay_{self.paid.index(key) + 1}" if key in self.paid else None


def test_the_client(told: AsTold):
    client: dict = {}
    exec(compile(LOOP, "README.md", "exec"), client)  # noqa: S102
    pay, reconcile, not_now = client["pay"], client["reconcile"], client["NotNow"]
    ledger, provider = told.client().stub, Provider()
    request = {"amount": "49.90", "currency": "EUR"}

    assert pay(ledger, provider, "order-1/payment", request) == "pay_1"
    assert pay(ledger, provider, "order-1/payment", request) == "pay_1"
    assert provider.paid == ["order-1/payment"], "a repeat uses the result"

    provider.fate = "lose"
    with pytest.raises(TimeoutError):
        pay(ledger, provider, "order-2/payment", request)
    with pytest.raises(not_now) as told_so:
        pay(ledger, provider, "order-2/payment", request)
    assert told_so.value.args == (RECONCILE,)
    assert reconcile(ledger, provider, "order-2/payment") == USE_RESULT
    assert pay(ledger, provider, "order-2/payment", request) == "pay_2"
    assert provider.paid == ["order-1/payment", "order-2/payment"], "a lost answer is not paid twice"

    provider.fate = "decline"
    with pytest.raises(Provider.Declined):
        pay(ledger, provider, "order-3/payment", request)
    with pytest.raises(not_now) as told_so:
        pay(ledger, provider, "order-3/payment", request)
    assert told_so.value.args == (STOP,)

    provider.fate = "vanish"
    with pytest.raises(ConnectionError):
        pay(ledger, provider, "order-4/payment", request)
    assert reconcile(ledger, provider, "order-4/payment") == RECONCILE, "an absence is not believed by default"


def test_every_file_that_it_names_is_there():
    links = set(re.findall(r"\]\(([^)#:]+)\)", README))
    assert links, "the README links its pages"
    for page in [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links {link}"
