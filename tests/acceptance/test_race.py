"""16 processes want the same key at the same moment: one gets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness import assert_no_duplicates, rows_of
from ledger_client import EXECUTE, check_history, event_names

RACERS = 16


def race(addresses: list[str], key: str) -> list[dict]:
    script = Path(__file__).parent / "racer.py"
    racers = [
        subprocess.Popen(
            [sys.executable, str(script), addresses[n % len(addresses)], key, f"worker-{n}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(RACERS)
    ]  # fmt: skip
    try:
        for racer in racers:
            assert racer.stdout.readline().strip() == "ready"
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return [json.loads(racer.communicate(timeout=40)[0]) for racer in racers]
    finally:
        for racer in racers:
            if racer.poll() is None:
                racer.kill()
                racer.wait()


def judge(answers: list[dict]) -> None:
    assert len(answers) == RACERS
    assert sum(a["created"] for a in answers) == 1
    winners = [a for a in answers if a["granted"]]
    assert len(winners) == 1, f"{len(winners)} processes may act"
    assert winners[0]["attempt"] == 1 and winners[0]["token"]
    assert winners[0]["next_step"] == "NEXT_STEP_EXECUTE"
    losers = [a for a in answers if not a["granted"]]
    assert all(a["next_step"] == "NEXT_STEP_WAIT" and a["retry_after"] and not a["token"] for a in losers)


def test_sixteen_processes_one_grant(shared_server, ledger, key):
    judge(race([shared_server.address], key))
    assert rows_of(shared_server.store, key) == [(key, "in_progress", "1", "")]
    assert event_names(check_history(ledger, key)) == ["registered", "claimed"]
    assert_no_duplicates(shared_server.store)


def test_sixteen_processes_over_three_replicas_one_grant(store, start, key):
    replicas = [start(store) for _ in range(3)]
    judge(race([replica.address for replica in replicas], key))
    assert rows_of(store, key) == [(key, "in_progress", "1", "")]
    for replica in replicas:
        client = replica.client()
        assert event_names(check_history(client, key)) == ["registered", "claimed"], "all replicas see the same"
        assert client.claim(key).next_step != EXECUTE
