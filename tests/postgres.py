"""A real PostgreSQL server in a temporary directory, for tests and benchmarks: made, used, stopped, removed.

The server refuses to run as root; there its programs run as the user `postgres` (or `nobody`). It runs as a child of
the caller, who is the only one that can see it end where nobody reaps orphans. Where no server can be had `NoPostgres`
says why, in one sentence.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.ports import free_ports

PROGRAMS = Path("/usr/lib/postgresql")
START_TIMEOUT_S = 120


class NoPostgres(Exception):
    """No server can be started here."""


@dataclass(frozen=True)
class PostgresServer:
    """A running server; whoever uses it makes databases of their own."""

    port: int

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @staticmethod
    @contextmanager
    def started(*, durable: bool) -> Iterator["PostgresServer"]:
        """A server until the block ends; `durable=False` leaves fsync out, for tests that never kill the server."""
        programs = _programs()
        user = _unprivileged()
        home = Path(tempfile.mkdtemp(prefix="moorage-pg-"))
        try:
            if user is not None:
                os.chown(home, user.pw_uid, user.pw_gid)
            with _running(programs, home, user, durable) as server:
                yield server
        finally:
            shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _running(programs: Path, home: Path, user: pwd.struct_passwd | None, durable: bool) -> Iterator[PostgresServer]:
    log = home / "log"
    with log.open("wb") as output:
        common: dict[str, Any] = {
            "cwd": home,
            "env": {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"},
            "stdin": subprocess.DEVNULL,
            "stdout": output,
            "stderr": subprocess.STDOUT,
        }
        if user is not None:
            common |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        make = [programs / "initdb", "-D", home / "data", "-A", "trust", "-U", "postgres", "--no-sync"]
        if subprocess.run(make, **common, timeout=START_TIMEOUT_S, check=False).returncode:
            raise NoPostgres(f"PostgreSQL cannot make its files here ({_last_line(log)})")
        server = PostgresServer(free_ports(1)[0])
        settings = {"listen_addresses": "127.0.0.1", "port": server.port, "unix_socket_directories": home}
        settings["fsync"] = "on" if durable else "off"
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = subprocess.Popen([programs / "postgres", "-D", home / "data", *options], **common)
        try:
            _wait_until_it_answers(server, process, log)
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()


def _wait_until_it_answers(server: PostgresServer, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        try:
            psycopg.connect(server.url("postgres"), connect_timeout=30).close()
        except psycopg.OperationalError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
        else:
            return
    raise NoPostgres(f"PostgreSQL does not start here ({_last_line(log)})")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it says nothing"


def _programs() -> Path:
    installed = sorted(PROGRAMS.glob("*/bin/initdb")) if PROGRAMS.is_dir() else []
    on_path = shutil.which("initdb")
    for found in (*reversed(installed), *((Path(on_path).resolve(),) if on_path else ())):
        if (found.parent / "postgres").exists():
            return found.parent
    raise NoPostgres("PostgreSQL is not installed (initdb is neither in PATH nor in /usr/lib/postgresql)")


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres("PostgreSQL does not run as root and there is no user postgres or nobody to run it as")
