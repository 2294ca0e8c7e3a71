"""Makes the Python stubs from `proto/` in a temporary folder and puts it on the import path.

Import this before `opledger.v1`. Helper processes get the same folder through OPLEDGER_TEST_STUBS.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def _generate() -> str:
    from importlib.resources import files

    from grpc_tools import protoc

    target = tempfile.mkdtemp(prefix="opledger-stubs-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    protos = sorted((REPO / "proto" / "opledger" / "v1").glob("*.proto"))
    arguments = [
        "protoc",
        f"-I{REPO / 'proto'}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        *map(str, protos),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("the stubs could not be generated from proto/")
    return target


FOLDER = os.environ.get("OPLEDGER_TEST_STUBS") or _generate()
sys.path.insert(0, FOLDER)
