"""The commands for people, against a running server: get, list, history, reconcile; and the demo."""

from __future__ import annotations

import json
import re

from harness import cli, opledger
from ledger_client import SUCCEEDED, new_id, options


def parsed(done) -> object:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def find(value: object, name: str) -> object:
    """The first member with this name, in camel or snake case, however deep."""
    camel = re.sub(r"_(.)", lambda m: m.group(1).upper(), name)
    if isinstance(value, dict):
        for each in (name, camel):
            if each in value:
                return value[each]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            found = find(each, name)
            if found is not None:
                return found
    return None


def test_get(ledger, shared_server, key):
    lease = ledger.register(key, claim=options(lease=60)).lease
    ledger.succeed(key, lease.token, "pay_1", {"ok": True})
    answer = parsed(cli(shared_server, "get", key, "--json"))
    assert find(answer, "operation_key") == key
    assert "succeeded" in str(find(answer, "status")).lower()
    assert find(answer, "external_id") == "pay_1"
    assert lease.token not in json.dumps(answer)

    text = cli(shared_server, "get", key)
    assert text.returncode == 0
    assert key in text.stdout.decode() and "succeeded" in text.stdout.decode().lower()
    assert b"\x1b[" not in text.stdout, "no colours where it is not a terminal"


def test_get_of_an_unknown_key(shared_server, key):
    done = cli(shared_server, "get", key, "--json")
    assert done.returncode not in (0, 101)
    assert b"OPERATION_NOT_FOUND" in done.stderr or b"no operation" in done.stderr.lower()


def test_list(ledger, shared_server, key):
    team = new_id()
    ledger.register(key, labels={"team": team})
    only = f"team={team}"
    done = cli(shared_server, "list", "--label", only, "--json")
    assert done.returncode == 0 and key in done.stdout.decode()
    text = cli(shared_server, "list", "--label", only).stdout.decode()
    assert key in text and "pending" in text.lower()
    assert key not in cli(shared_server, "list", "--label", "team=no-such").stdout.decode()


def test_history(ledger, shared_server, key):
    ledger.register(key, claim=options(lease=60))
    done = cli(shared_server, "history", key, "--json")
    assert done.returncode == 0
    text = done.stdout.decode().lower()
    assert text.index("registered") < text.index("claimed")
    assert b"claimed" in cli(shared_server, "history", key).stdout.lower()


def test_reconcile(ledger, shared_server, key):
    lease = ledger.register(key, claim=options(lease=60)).lease
    ledger.mark_unknown(key, lease.token)
    done = cli(shared_server, "reconcile", key, "--succeeded", "--external-id", "pay_1", "--json")
    assert done.returncode == 0, done.stderr
    operation = ledger.operation(key)
    assert (operation.status, operation.external_id) == (SUCCEEDED, "pay_1")


def test_a_server_that_is_not_there_is_said(shared_server):
    done = opledger("get", "k", "--server", "http://127.0.0.1:1")
    assert done.returncode not in (0, 101) and b"127.0.0.1:1" in done.stderr
    assert b"panicked" not in done.stderr


def test_the_demo_tells_the_lost_answer_story():
    done = opledger("demo", timeout=60)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode().lower()
    at = -1
    for part in ("lost", "unknown", "reconcile", "succeeded", "conflict"):
        at = text.find(part, at + 1)
        assert at >= 0, f"the story lacks {part!r}, in this order:\n{text}"
    assert re.search(r"(exactly )?(one|1) (effect|payment)", text), text
    assert "\x1b[" not in text


def test_help_and_version():
    assert opledger("--version").stdout.startswith(b"opledger ")
    text = opledger("--help").stdout.decode()
    for command in ("serve", "migrate", "demo", "hash", "policy", "get", "list", "history", "reconcile"):
        assert command in text
    serve = opledger("serve", "--help").stdout.decode()
    for flag in ("--database-url", "--listen", "--admin-listen", "--policy", "--config", "--drain-timeout"):
        assert flag in serve
