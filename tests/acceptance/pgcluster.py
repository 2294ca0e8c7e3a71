"""A throw-away PostgreSQL cluster, for tests only. Standard library only.

    python3 pgcluster.py start DIR     # prints the superuser URL; DIR must not exist or be empty
    python3 pgcluster.py stop DIR      # ends it and removes DIR

Listens on 127.0.0.1 alone, trusts every local connection and keeps PostgreSQL's own durability
settings. Started by root, it runs as an unprivileged user, since PostgreSQL refuses root.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_LIMIT = 60.0  # seconds


def bin_dir() -> Path | None:
    """Where PostgreSQL's server programs are, or None."""
    found = shutil.which("initdb")
    if found:
        return Path(os.path.realpath(found)).parent
    candidates = [p for p in glob.glob("/usr/lib/postgresql/*/bin") if os.path.exists(p + "/initdb")]
    if not candidates:
        return None
    return Path(max(candidates, key=lambda p: [int(n) for n in re.findall(r"\d+", p)]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _unprivileged() -> list[str]:
    """The prefix that leaves root, or nothing where we are not root."""
    if os.geteuid() != 0:
        return []
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    raise RuntimeError("no unprivileged user to run PostgreSQL as")


class Cluster:
    def __init__(self, root: Path | str, port: int | None = None):
        self.root = Path(root)
        self.data = self.root / "data"
        self.log = self.root / "postgres.log"
        port_file = self.root / "port"
        if port is None and port_file.exists():
            port = int(port_file.read_text())
        self.port = port or free_port()

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *args: str) -> None:
        found = bin_dir()
        if found is None:
            raise RuntimeError("PostgreSQL's initdb was not found")
        done = subprocess.run(
            [*_unprivileged(), str(found / program), *args],
            cwd="/",
            env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(self.root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_LIMIT + 30,
        )
        if done.returncode != 0:
            log = self.log.read_text(errors="replace") if self.log.exists() else ""
            raise RuntimeError(f"{program} ended with {done.returncode}:\n{done.stdout.decode()}\n{log[-4000:]}")

    def create(self) -> "Cluster":
        self.root.mkdir(parents=True, exist_ok=True)
        prefix = _unprivileged()
        if prefix:
            uid, gid = (int(part.split("=")[1]) for part in prefix[1:3])
            os.chown(self.root, uid, gid)
            _let_through(self.root)
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        (self.root / "port").write_text(str(self.port))
        return self

    def start(self, **settings: str) -> "Cluster":
        settings = {"max_connections": "200", "shared_buffers": "64MB", **settings}
        options = f"-p {self.port} -k {self.root} -c listen_addresses=127.0.0.1"
        options += "".join(f" -c {name}={value}" for name, value in settings.items())
        self._run(
            "pg_ctl", "-D", str(self.data), "-l", str(self.log), "-o", options,
            "-w", "-t", str(int(START_LIMIT)), "start",
        )  # fmt: skip
        return self

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is a crash: no checkpoint, clients cut off."""
        if self.pid() is not None:
            self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "-t", "30", "stop")

    def pid(self) -> int | None:
        """The postmaster's pid, if it lives."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, 0)
        except (OSError, ValueError, IndexError):
            return None
        return pid

    def destroy(self) -> None:
        try:
            self.stop("immediate")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"pgcluster: {error}", file=sys.stderr)
            pid = self.pid()
            if pid is not None:
                os.kill(pid, signal.SIGQUIT)
                time.sleep(0.5)
        shutil.rmtree(self.root, ignore_errors=True)


def _let_through(path: Path) -> None:
    """Gives everybody the way through the temporary folders above, as the server is another user."""
    for parent in path.parents:
        status = parent.stat()
        if status.st_uid == os.geteuid() and not status.st_mode & 0o001 and str(parent).startswith("/tmp/"):
            parent.chmod(status.st_mode | 0o011)


def main(args: list[str]) -> int:
    if len(args) != 2 or args[0] not in ("start", "stop"):
        print(__doc__, file=sys.stderr)
        return 2
    cluster = Cluster(Path(args[1]).resolve())
    if args[0] == "start":
        try:
            print(cluster.create().start().url)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"pgcluster: {error}", file=sys.stderr)
            cluster.destroy()
            return 1
    else:
        cluster.destroy()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
