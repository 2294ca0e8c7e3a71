"""Which JSON is taken, what its fingerprint is, and that both stores and `opledger hash` agree."""

from __future__ import annotations

import hashlib

import pytest
from harness import opledger
from ledger_client import Ledger, Refusal, invalid, new_id, options, refused
import grpc

DEEP_127 = "[" * 127 + "]" * 127
DEEP_128 = "[" * 128 + "]" * 128

# text as sent -> its canonical form
TAKEN = {
    '{"b":1,"a":2}': '{"a":2,"b":1}',
    ' { "a" : [ 1 , 2 ] } ': '{"a":[1,2]}',
    '{"n":9007199254740991}': '{"n":9007199254740991}',
    '{"n":-9007199254740991}': '{"n":-9007199254740991}',
    '{"n":1.0}': '{"n":1}',
    '{"n":1e0}': '{"n":1}',
    '{"n":10E-1}': '{"n":1}',
    '{"n":-0}': '{"n":0}',
    '{"n":-0.0}': '{"n":0}',
    '{"n":0.1}': '{"n":0.1}',
    '{"n":1e-7}': '{"n":1e-7}',
    '{"n":0.000001}': '{"n":0.000001}',
    '{"n":5e-324}': '{"n":5e-324}',
    '{"\\u0061":"\\u00e9\\/"}': '{"a":"é/"}',
    '{"s":"\\ud83e\\udd80"}': '{"s":"🦀"}',
    '{"\U0001f980":1,"\ufb33":2}': '{"\U0001f980":1,"\ufb33":2}',  # ordered by UTF-16 code units
    '{"s":"\\u0001\\u001f\\b\\n\\u007f"}': '{"s":"\\u0001\\u001f\\b\\n\x7f"}',
    '{"$serde_json::private::Number":"1e5"}': '{"$serde_json::private::Number":"1e5"}',
    '{"$serde_json::private::RawValue":"1"}': '{"$serde_json::private::RawValue":"1"}',
    '{"":{"":[]}}': '{"":{"":[]}}',
    '[3,1,2]': "[3,1,2]",
    DEEP_127: DEEP_127,
}  # fmt: skip

REFUSED = {
    "duplicate name": '{"a":1,"a":1}',
    "duplicate through an escape": '{"a":1,"\\u0061":2}',
    "duplicate deep inside": '{"x":[{"y":{"a":1,"b":2,"a":1}}]}',
    "2^53": '{"n":9007199254740992}',
    "2^53 + 1": '{"n":9007199254740993}',
    "2^53 + 1 with a fraction": '{"n":9007199254740993.0}',
    "-2^53": '{"n":-9007199254740992}',
    "20 digits": '{"n":18446744073709551616}',
    "1e21": '{"n":1e21}',
    "1e400": '{"n":1e400}',
    "1e-400": '{"n":1e-400}',
    "-1e-400": '{"n":-1e-400}',
    "a lossy decimal": '{"n":0.10000000000000000001}',
    "a lossy double": '{"n":333333333.33333329}',
    "a huge exponent": '{"n":1e99999999999999999999}',
    "a very long number": '{"n":' + "9" * 100_000 + "}",
    "NaN": '{"n":NaN}',
    "Infinity": '{"n":-Infinity}',
    "a leading zero": '{"n":01}',
    "a leading plus": '{"n":+1}',
    "no digit after the point": '{"n":1.}',
    "no digit before the point": '{"n":.5}',
    "hexadecimal": '{"n":0x10}',
    "a lone high surrogate": '{"s":"\\ud800"}',
    "a lone low surrogate": '{"s":"\\udc00x"}',
    "a reversed pair": '{"s":"\\udc00\\ud800"}',
    "a lone surrogate as name": '{"\\ud800":1}',
    "a byte-order mark": '\ufeff{"a":1}',
    "trailing text": '{"a":1} x',
    "two texts": "{}{}",
    "a trailing comma": '{"a":1,}',
    "a comment": '{"a":1/*x*/}',
    "single quotes": "{'a':1}",
    "a raw newline in a text": '{"a":"\n"}',
    "a bad escape": '{"a":"\\x"}',
    "128 levels": DEEP_128,
    "100,000 levels": "[" * 100_000,
    "nothing": "",
    "white space only": "  ",
    "a truncated text": '{"a":',
    "vertical tab as white space": '{"a":1}\x0b',
}


def fingerprint(canonical: str) -> str:
    return hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("text", TAKEN, ids=lambda t: t[:40].encode("unicode_escape").decode())
def test_taken_with_this_fingerprint(ledger, key, text):
    operation = ledger.register(key, text).operation
    assert operation.request_hash == fingerprint(TAKEN[text])
    assert operation.hash_scheme == "jcs-sha256/1"
    assert not ledger.register(key, TAKEN[text]).created, "the canonical form is the same request"
    assert not ledger.register(key, request_hash=fingerprint(TAKEN[text])).created, "so is its hash"


@pytest.mark.parametrize("name", REFUSED)
def test_refused(ledger, key, name):
    with invalid("payload_json"):
        ledger.register(key, REFUSED[name])
    with refused("NOT_FOUND", "OPERATION_NOT_FOUND"):
        ledger.get(key)


def test_a_duplicate_is_refused_with_its_position(ledger, key):
    with invalid("payload_json") as refusal:
        ledger.register(key, '{\n  "a": 1,\n  "a": 2\n}')
    assert "3" in refusal.fields["payload_json"], f"line 3: {refusal.fields}"


@pytest.mark.parametrize("text", ['{"n":9007199254740993}', '{"n":0.10000000000000000001}', '{"n":1e400}'])
def test_an_unsafe_number_is_refused_with_the_advice_to_send_a_string(ledger, key, text):
    with invalid("payload_json") as refusal:
        ledger.register(key, text)
    assert "string" in refusal.fields["payload_json"].lower()


def test_unicode_forms_are_different_requests(ledger, key):
    ledger.register(key, '{"s":"\u00e9"}')
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
        ledger.register(key, '{"s":"e\u0301"}')


def test_order_of_members_does_not_matter_and_order_of_elements_does(ledger, key):
    ledger.register(key, '{"a":[1,2],"b":{"c":1,"d":2}}')
    assert not ledger.register(key, '{"b":{"d":2,"c":1},"a":[1,2]}').created
    with refused("ALREADY_EXISTS", "REQUEST_HASH_MISMATCH"):
        ledger.register(key, '{"a":[2,1],"b":{"c":1,"d":2}}')


def test_a_policy_may_refuse_fractions(ledger, key):
    assert ledger.register(key, '{"cents":100}', action="minor_units").created
    assert ledger.register(f"{key}/2", '{"cents":1.0e2}', action="minor_units").created, "this is an integer"
    with invalid("payload_json"):
        ledger.register(f"{key}/3", '{"euros":1.5}', action="minor_units")


def test_the_payload_is_kept_only_where_that_was_asked(ledger, key):
    text = '{"b": 1.50, "a": "\\u00e9"}'
    assert not ledger.register(key, text).operation.HasField("payload_json")
    assert not ledger.operation(key).HasField("payload_json")
    ledger.register(f"{key}/2", text, store_payload=True)
    assert ledger.operation(f"{key}/2").payload_json == text, "byte for byte"


def outcome(call) -> tuple:
    """What a call led to, in a form that can be compared between the stores."""
    try:
        return ("OK", call())
    except grpc.RpcError as error:
        refusal = Refusal().read(error)
        return (refusal.code, refusal.reason, refusal.fields)


NUL_TEXTS = ['{"s":"\\u0000"}', '{"\\u0000":1}', '{"s":"a\\u0000b"}', '"\\u0000"', '{"s":"\0"}']


@pytest.mark.parametrize("text", NUL_TEXTS, ids=lambda t: t.encode("unicode_escape").decode())
def test_nul_in_json_texts_behaves_the_same_on_both_stores(both, text):
    run = new_id()

    def payload(ledger: Ledger):
        ledger.register(f"nul:{run}", text, store_payload=True)
        return ledger.operation(f"nul:{run}").payload_json

    def result(ledger: Ledger):
        token = ledger.register(f"nul:{run}/r", claim=options(lease=60)).lease.token
        ledger.succeed(f"nul:{run}/r", token, "pay_1", text)
        return ledger.operation(f"nul:{run}/r").result_json

    for call in (payload, result):
        first, second = (outcome(lambda: call(ledger)) for ledger in both)
        assert first == second
        if first[0] != "OK":
            assert first[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        elif call is result:
            assert first[1] == text, "byte for byte"


@pytest.mark.parametrize("text", ['{"b": 1,  "a": 1.50, "b2": 1e2}', '"\\u00e9\\/é🦀"', "[1, 2 ,3]", "null", "0"])
def test_results_come_back_byte_for_byte(ledger, key, text):
    token = ledger.register(key, claim=options(lease=60)).lease.token
    ledger.succeed(key, token, "pay_1", text)
    assert ledger.operation(key).result_json == text


def test_the_command_line_makes_the_same_hashes():
    lines = [text.strip() for text in TAKEN]
    done = opledger("hash", "--lines", input="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split() == [fingerprint(TAKEN[text]) for text in TAKEN]
    for text in list(TAKEN)[:5]:
        assert opledger("hash", input=text).stdout.decode().strip() == fingerprint(TAKEN[text])
        assert opledger("hash", "-", input=text).stdout.decode().strip() == fingerprint(TAKEN[text])
        canonical = opledger("hash", "--canonical", "-", input=text)
        assert canonical.stdout.removesuffix(b"\n") == TAKEN[text].encode()


@pytest.mark.parametrize("name", ["duplicate name", "2^53", "1e-400", "a lone high surrogate", "128 levels", "nothing"])
def test_the_command_line_refuses_the_same(name):
    done = opledger("hash", "-", input=REFUSED[name])
    assert done.returncode != 0 and done.stderr and not done.stdout.strip()
    assert b"panicked" not in done.stderr


def test_a_hash_of_a_file_is_the_hash_of_the_request(ledger, key, tmp_path):
    path = tmp_path / "request.json"
    path.write_text('{"to": "x", "amount": 12.5}')
    hashed = opledger("hash", str(path)).stdout.decode().strip()
    assert ledger.register(key, path.read_text()).operation.request_hash == hashed
    assert not ledger.register(key, request_hash=hashed).created


def test_bytes_that_are_not_utf8_are_refused():
    done = opledger("hash", "-", input=b'{"a":"\xff"}')
    assert done.returncode != 0 and b"panicked" not in done.stderr
