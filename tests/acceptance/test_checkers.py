"""Two thousand unknown operations, three replicas, four checkers that die at random: every operation is settled
once, none is asked about by two at a time, none is left behind. The seed is printed; OPLEDGER_TEST_SEED repeats it."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor

from harness import PostgresStore
from ledger_client import new_id, pb, seconds, success

POLICY = """
tool_policy:
  default:
    lease: {default_seconds: 30}
    unknown_after_seconds: 900
    reconcile: {initial_delay_seconds: 0.1, multiplier: 1, max_interval_seconds: 0.1, jitter: 0}
"""
OPERATIONS, REPLICAS, CHECKERS = 2000, 3, 4


def test_four_checkers_on_three_replicas(start, postgres_url):
    seed = int(os.environ.get("OPLEDGER_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"OPLEDGER_TEST_SEED={seed}")
    store = PostgresStore(postgres_url)
    servers = [start(store, policy=POLICY) for _ in range(REPLICAS)]
    clients = [server.client(timeout=30) for server in servers]

    def prepare(number: int) -> None:
        client, key = clients[number % REPLICAS], f"k/{number:04}"
        claim = pb.ClaimOptions(claim_id=new_id(), worker_id="agent")
        token = client.register(key, action=f"action-{number % 5}", claim=claim).lease.token
        client.mark_unknown(key, token)

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(prepare, range(OPERATIONS)))

    def checker(which: int) -> int:
        dice, deaths = random.Random(seed + which), 0
        while True:
            client = dice.choice(clients)
            items = client.call(
                "Poll", timeout=30, purpose=pb.PURPOSE_RECONCILE, max_operations=50, wait=seconds(4),
                poll_id=new_id(), lease_duration=seconds(1), worker_id=f"checker-{which}",
            ).items  # fmt: skip
            if not items:
                return deaths
            # Dies somewhere in its list: the rest is due again when the leases end.
            alive = len(items) if dice.random() < 0.7 else dice.randrange(len(items))
            deaths += alive < len(items)
            for item in items[:alive]:
                key = item.operation.operation_key
                dice.choice(clients).reconcile(key, succeeded=success(f"pay/{key}"), lease_token=item.lease.token)

    with ThreadPoolExecutor(CHECKERS) as pool:
        deaths = sum(pool.map(checker, range(CHECKERS)))
    assert deaths > 0, "somebody must have died"

    assert store.query("SELECT status, count(*), min(attempt_count), max(attempt_count) FROM agent_operations GROUP BY 1") == [
        ("succeeded", str(OPERATIONS), "1", "1")
    ]
    settled = store.query(
        "SELECT count(*), count(DISTINCT operation_id) FROM agent_operation_events WHERE kind = 'succeeded'"
    )
    assert settled == [(str(OPERATIONS), str(OPERATIONS))], "each is settled once"
    # Between two grants of one operation's check, the first lease must have ended.
    for number in random.Random(seed).sample(range(OPERATIONS), 200):
        held_until = 0
        for event in clients[0].events(f"k/{number:04}"):
            if pb.EventType.Name(event.type) == "EVENT_TYPE_CHECK_CLAIMED":
                at = event.event_time.ToMicroseconds()
                assert at >= held_until, f"k/{number:04} is asked about by two at a time"
                held_until = json.loads(event.detail_json)["check_lease"]["until"]
