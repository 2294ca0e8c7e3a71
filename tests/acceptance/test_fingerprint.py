"""`opledger hash` makes the canonical form (RFC 8785) and the hash that any client can check.

Goal: the form is the one that other implementations make, or the text is refused, with its place.
Method: the RFC's vectors, random doubles against Node's own number writer, a table of hostile texts. No
server is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import struct
import subprocess
import time
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("OPLEDGER_TEST_BINARY") or str(ROOT / "target" / "debug" / "opledger")
VECTORS = ROOT / "tests" / "vectors" / "jcs"
SAFE_MAX = 2**53 - 1
DOUBLES = 100_000


def run(*args: str, text: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
    stdin = text.encode() if isinstance(text, str) else text
    return subprocess.run([PROGRAM, "hash", *args], input=stdin, capture_output=True, timeout=60, check=False)


def canonical(text: str | bytes) -> bytes:
    done = run("--canonical", text=text)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


# Vectors


@pytest.mark.parametrize("name", ["arrays", "french", "structures", "unicode", "weird"])
def test_a_vector_of_the_rfc_has_the_rfcs_form(name: str) -> None:
    path = VECTORS / "input" / f"{name}.json"
    expected = (VECTORS / "output" / f"{name}.json").read_bytes()
    assert expected == bytes.fromhex((VECTORS / "outhex" / f"{name}.txt").read_text())
    assert run("--canonical", str(path)).stdout == expected
    assert canonical(path.read_bytes()) == expected
    digest = hashlib.sha256(expected).hexdigest() + "\n"
    assert run(str(path)).stdout.decode() == digest
    assert run("-", text=expected).stdout.decode() == digest, "the canonical form is its own canonical form"


def test_the_vector_whose_numbers_others_could_take_for_others_is_refused() -> None:
    path = VECTORS / "input" / "values.json"
    done = run(str(path))
    assert done.returncode == 1 and done.stdout == b""
    assert re.search(rf"{re.escape(str(path))}:2:\d+: .*string", done.stderr.decode()), done.stderr


# Numbers


def random_doubles(rng: random.Random) -> list[float]:
    """Any bit pattern, money, short decimals, and neighbours of powers of ten and two."""
    values: list[float] = []
    while len(values) < DOUBLES:
        kind = rng.randrange(5)
        if kind == 0:
            (value,) = struct.unpack("<d", rng.randbytes(8))
        elif kind == 1:
            value = rng.randrange(-(10**11), 10**11) / 100
        elif kind == 2:
            value = float(f"{rng.randrange(-(10**6), 10**6)}e{rng.randrange(-30, 12)}")
        elif kind == 3:
            value = float(rng.randrange(-SAFE_MAX, SAFE_MAX + 1))
        else:
            value = rng.choice([10.0, 2.0]) ** rng.randrange(-300, 16)
            value *= 1 + rng.randrange(-4, 5) * 2**-52
        if abs(value) <= SAFE_MAX:  # also no NaN
            values.append(value)
    return values


def written_by_node(values: list[float]) -> list[str]:
    """JSON.stringify of each, from its bits, so that no text is read on the way."""
    script = (
        "const b = require('fs').readFileSync(0); const out = [];"
        "for (let i = 0; i < b.length; i += 8) out.push(JSON.stringify(b.readDoubleLE(i)));"
        "process.stdout.write(out.join('\\n'));"
    )
    bits = struct.pack(f"<{len(values)}d", *values)
    done = subprocess.run(["node", "-e", script], input=bits, capture_output=True, timeout=60, check=True)
    return done.stdout.decode().split("\n")


def test_random_doubles_are_written_as_node_writes_them() -> None:
    seed = int(os.environ.get("OPLEDGER_TEST_SEED") or time.time_ns())
    print(f"OPLEDGER_TEST_SEED={seed}")
    values = random_doubles(random.Random(seed))
    expected = written_by_node(values)
    assert len(expected) == DOUBLES

    # As Python writes them: other texts than Node's for the same values (1e-05, 1.0, 1e+16).
    done = run("--canonical", "--lines", text="\n".join(map(repr, values)))
    assert done.returncode == 0, done.stderr.decode()[:500]
    for value, ours, nodes in zip(values, done.stdout.decode().splitlines(), expected, strict=True):
        assert ours == nodes, f"{value!r} ({value.hex()})"

    again = run("--canonical", "--lines", text="\n".join(expected))
    assert again.returncode == 0 and again.stdout == done.stdout, "the form is its own form"
    hashes = run("--lines", text="\n".join(expected)).stdout.decode().split()
    assert hashes == [hashlib.sha256(text.encode()).hexdigest() for text in expected]


def test_a_number_is_taken_exactly_where_its_form_has_the_same_value() -> None:
    """The rule itself, against Python's exact decimals: random texts around what doubles carry."""
    seed = int(os.environ.get("OPLEDGER_TEST_SEED") or time.time_ns())
    print(f"OPLEDGER_TEST_SEED={seed}")
    rng = random.Random(seed)
    texts = []
    for _ in range(20_000):
        digits = "".join(rng.choices("0123456789", k=rng.randrange(1, 20))) + "0" * rng.choice([0, 0, 3])
        point = rng.randrange(len(digits) + 1)
        whole, fraction = digits[:point].lstrip("0") or "0", digits[point:]
        text = rng.choice(["", "-"]) + whole + (f".{fraction}" if fraction else "")
        if rng.random() < 0.5:
            text += f"{rng.choice('eE')}{rng.choice(['', '+', '-'])}{rng.randrange(25)}"
        texts.append(text)

    done = run("--canonical", "--lines", text="\n".join(texts))
    refused = {int(line) for line in re.findall(r"^stdin:(\d+):1: ", done.stderr.decode(), re.MULTILINE)}
    written = iter(done.stdout.decode().splitlines())
    for number, text in enumerate(texts, 1):
        exact = Decimal(text)
        taken = abs(float(text)) <= SAFE_MAX and Decimal(repr(float(text))) == exact
        assert taken == (number not in refused), text
        if taken:
            assert Decimal(next(written)) == exact, text
    assert next(written, None) is None
    assert 1000 < len(refused) < 19_000, "both sides of the rule were tried"


# Hostile texts

DEEP_127 = "[" * 127 + "]" * 127
TAKEN = {
    "the trap of arbitrary_precision": ('{"$serde_json::private::Number":"1e5"}',) * 2,
    "127 levels": (DEEP_127, DEEP_127),
    "escaped NUL": ('"\\u0000"', '"\\u0000"'),
    "minus zero": ("[-0,-0.0]", "[0,0]"),
    "one number in four spellings": ("[1,1.0,1e0,10E-1]", "[1,1,1,1]"),
    "the largest safe integers": ("[9007199254740991,-9007199254740991]",) * 2,
    "NFC and NFD": ('["\u00e9","e\u0301"]', '["\u00e9","e\u0301"]'),
    "a pair written as escapes": ('"\\ud83e\\udd80"', '"\U0001f980"'),
    "order by UTF-16": ('{"\ufb33":1,"\U0001f980":2}', '{"\U0001f980":2,"\ufb33":1}'),
}

# text, the place (line:column), a word of the message
REFUSED: dict[str, tuple[str | bytes, str, str]] = {
    "duplicate name": ('{"a":1,"a":1}', "1:8", "duplicate"),
    "duplicate name through an escape": ('{"a":1,\n"\\u0061":2}', "2:1", "duplicate"),
    "2^53": ("9007199254740992", "1:1", "string"),
    "2^53 + 1": ("[9007199254740993]", "1:2", "string"),
    "2^53 + 1 with a point": ("9007199254740993.0", "1:1", "string"),
    "20 digits": ("18446744073709551616", "1:1", "string"),
    "1e21": ("1e21", "1:1", "string"),
    "1e400": ("1e400", "1:1", "string"),
    "1e-400": ("1e-400", "1:1", "string"),
    "more digits than a double carries": ("0.10000000000000000001", "1:1", "string"),
    "lone high surrogate": ('"\\ud800"', "1:2", "surrogate"),
    "lone low surrogate": ('"\\udc00"', "1:2", "surrogate"),
    "128 levels": ("[" + DEEP_127 + "]", "1:128", "127"),
    "a million levels": ("[" * 1_000_000, "1:128", "127"),
    "byte-order mark": ("\ufeff{}", "1:1", "byte-order mark"),
    "trailing text": ("{} {}", "1:4", "one JSON value"),
    "NaN": ("[NaN]", "1:2", "number"),
    "Infinity": ("[-Infinity]", "1:2", "number"),
    "control character": ('"a\nb"', "1:3", "escaped"),
    "nothing": ("", "1:1", "one complete JSON value"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_strange_text_is_taken_as_it_is(name: str) -> None:
    text, form = TAKEN[name]
    assert canonical(text) == form.encode()


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_text_is_refused_with_its_place_and_advice(name: str) -> None:
    text, place, word = REFUSED[name]
    done = run(text=text)
    message = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b""), message
    assert message.startswith(f"stdin:{place}: ") and word in message, message
    assert message.count("\n") == 1


def test_bytes_that_are_no_utf8_are_refused() -> None:
    done = run(text=b'["\xff"]')
    assert (done.returncode, done.stdout) == (1, b"") and b"UTF-8" in done.stderr


def test_no_message_quotes_the_text() -> None:
    for text in ('{"sesame":1,"sesame":2}', '["sesame\\x"]', "sesame", '{"a":77777777777777777}'):
        done = run(text=text)
        assert done.returncode == 1
        assert b"sesame" not in done.stderr and b"777" not in done.stderr


# The command


def test_lines_go_on_after_a_refused_one() -> None:
    done = run("--lines", text='{"b":1,"a":2}\n{"a":1,"a":2}\r\n\n[1.0]\r\n"end"')
    forms = ['{"a":2,"b":1}', "[1]", '"end"']
    assert done.stdout.decode().splitlines() == [hashlib.sha256(form.encode()).hexdigest() for form in forms]
    assert [line.split(": ")[0] for line in done.stderr.decode().splitlines()] == ["stdin:2:8", "stdin:3:1"]
    assert done.returncode == 1


def test_lines_are_answered_one_by_one() -> None:
    with subprocess.Popen(
        [PROGRAM, "hash", "--lines", "--canonical"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        for number in range(3):
            process.stdin.write(json.dumps({"b": number, "a": None}).encode() + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b'{"a":null,"b":%d}\n' % number
        process.stdin.close()
        assert process.wait(10) == 0


def test_fractions_are_refused_where_that_is_asked() -> None:
    assert run("--reject-fractions", text='{"cents":100.0}').returncode == 0
    done = run("--reject-fractions", text='{"euros":1.5}')
    assert done.returncode == 1 and b"minor units" in done.stderr


@pytest.mark.parametrize("args", [["--no-such-option"], ["a.json", "b.json"], ["no/such/file.json"]])
def test_a_wrong_command_line_exits_with_2(args: list[str]) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, b"") and done.stderr
