"""One process of the race for a key: prints `ready`, waits for a line, claims, prints what it got as JSON."""

from __future__ import annotations

import json
import sys

from ledger_client import Ledger, options, pb


def main(address: str, key: str, worker: str) -> None:
    with Ledger(address, timeout=20) as ledger:
        ledger.health_status(timeout=10)
        print("ready", flush=True)
        sys.stdin.readline()
        answer = ledger.register(key, {"amount": 5}, claim=options(worker=worker, lease=60))
        print(
            json.dumps(
                {
                    "created": answer.created,
                    "granted": answer.HasField("lease"),
                    "token": answer.lease.token,
                    "attempt": answer.lease.attempt,
                    "next_step": pb.NextStep.Name(answer.next_step),
                    "retry_after": answer.HasField("retry_after"),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
