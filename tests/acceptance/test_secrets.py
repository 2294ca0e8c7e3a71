"""What is secret (payloads, results, lease tokens) shows up in no error, event, metric or log."""

from __future__ import annotations

import grpc
from harness import wait_until
from ledger_client import Ledger, failure, new_id, options, pb, success
from google.protobuf.json_format import MessageToJson

MARK = "Zk7planted"  # begins every planted text


def test_nothing_secret_is_repeated(store, start, key):
    server = start(store, env={"OPLEDGER_LOG_LEVEL": "debug"})
    ledger = server.client()
    said: list[str] = []

    def attempt(call) -> None:
        try:
            call()
        except grpc.RpcError as error:
            said.append(f"{error.code()} {error.details()} {error.trailing_metadata()}")

    payload = {"card": f"{MARK}-payload", "amount": 1}
    claim_id = new_id()  # stands for the lease
    lease = ledger.register(key, payload, store_payload=True, claim=options(claim_id, lease=60)).lease
    secrets = [MARK, lease.token, lease.token.split(".", 1)[1], claim_id, claim_id.replace("-", "")]

    attempt(lambda: ledger.register(key, {"card": f"{MARK}-other", "amount": 1}))
    attempt(lambda: ledger.register(f"{key}/2", f'{{"card":"{MARK}-broken"'))
    attempt(lambda: ledger.register(f"{key}/2", f'{{"{MARK}-name":1,"{MARK}-name":2}}'))
    attempt(lambda: ledger.register(f"{key}/2", f'{{"{MARK}-big":9007199254740993}}'))
    attempt(lambda: ledger.register(f"{key}/2", f"{MARK}-not-json"))
    attempt(lambda: ledger.register(f"{key}/2", f'"{MARK}-{"x" * 300}"', action="small"))
    attempt(lambda: ledger.register(f"{key}/2", request_hash=f"{MARK}-hash"))
    attempt(lambda: ledger.register(f"{key}\n{MARK}-key", "{}"))
    attempt(lambda: ledger.register(f"{key}/2", "{}", labels={f"{MARK} label": "x"}))
    attempt(lambda: ledger.claim(key, f"{MARK}-claim"))
    attempt(lambda: ledger.renew(key, f"{MARK}-token"))
    attempt(lambda: ledger.succeed(key, f"{MARK}-token", "pay_1", {"r": f"{MARK}-result"}))
    attempt(lambda: ledger.succeed(key, lease.token, "pay_1", f'{{"r":"{MARK}-result"'))
    attempt(lambda: ledger.list(page_token=f"{MARK}-page"))
    refusals = len(said)
    ledger.succeed(key, lease.token, "pay_1", {"r": f"{MARK}-result"})
    attempt(lambda: ledger.succeed(key, lease.token, "pay_2", {"r": f"{MARK}-second-result"}))
    attempt(lambda: ledger.fail(key, lease.token))
    attempt(lambda: ledger.reconcile(key, succeeded=success("pay_3", {"r": f"{MARK}-third-result"})))
    attempt(lambda: ledger.reconcile(key, failed=failure("gone")))
    attempt(lambda: ledger.renew(key, lease.token))
    assert refusals == 14 and len(said) == 19, "every one of these calls is refused"

    events = [MessageToJson(event) for event in ledger.events(key)]
    listed = [MessageToJson(op) for op in ledger.list(statuses=[pb.OPERATION_STATUS_PENDING]).operations]
    metrics = wait_until(lambda: server.http("/metrics")[1], "/metrics")
    server.stop()
    for secret in secrets:
        for where, texts in {
            "an error": said,
            "an event": events,
            "a list": listed,
            "the metrics": [metrics],
            "the log": [server.log_text()],
        }.items():
            found = [text for text in texts if secret in text]
            assert not found, f"{where} repeats {secret!r}: {found[0][:1000]}"


def test_nothing_secret_is_logged_when_the_store_fails(own_cluster, start, key):
    from harness import PostgresStore

    server = start(PostgresStore(own_cluster.url), env={"OPLEDGER_LOG_LEVEL": "debug"})
    ledger: Ledger = server.client()
    lease = ledger.register(key, {"card": f"{MARK}-payload"}, store_payload=True, claim=options(lease=60)).lease
    own_cluster.stop("immediate")
    for call in (
        lambda: ledger.register(f"{key}/2", {"card": f"{MARK}-payload"}, store_payload=True),
        lambda: ledger.succeed(key, lease.token, "pay_1", {"r": f"{MARK}-result"}),
    ):
        try:
            call()
        except grpc.RpcError as error:
            assert MARK not in str(error.details()) and lease.token not in str(error.details())
    assert MARK not in server.log_text()
    assert lease.token not in server.log_text()


def test_results_are_blanked_where_the_policy_says_so(ledger, key):
    lease = ledger.register(key, action="redacted", claim=options(lease=60)).lease
    result = f'{{"card": {{"number": "{MARK}-4111", "brand": "x"}}}}'
    answer = ledger.succeed(key, lease.token, "pay_1", result)
    assert MARK not in answer.operation.result_json and '"brand"' in answer.operation.result_json
    assert MARK not in ledger.operation(key).result_json
    assert ledger.succeed(key, lease.token, "pay_1", result).replayed
