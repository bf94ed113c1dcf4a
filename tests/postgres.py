"""A real PostgreSQL server in a temporary directory, for tests and benchmarks: made, used, stopped, removed.

The server refuses to run as root, so there the programs run as the user `postgres` (or `nobody`). Where no server can be
had `NoPostgres` says why, in one sentence.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = "/usr/lib/postgresql"
START_TIMEOUT_S = 60


class NoPostgres(Exception):
    """No server can be started here."""


class PostgresServer:
    """A running server; databases are made by `url`'s callers."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.port = port

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @staticmethod
    @contextmanager
    def started() -> Iterator["PostgresServer"]:
        programs = _programs()
        user = _unprivileged()
        home = Path(tempfile.mkdtemp(prefix="moorage-pg-"))
        try:
            if user is not None:
                os.chown(home, user.pw_uid, user.pw_gid)
            server = PostgresServer(home, _free_port())
            run = _runner(user, home)
            run(programs / "initdb", "-D", home / "data", "-A", "trust", "-U", "postgres", "--no-sync")
            options = f"-p {server.port} -k {home} -c listen_addresses=127.0.0.1 -c max_connections=100"
            control = (programs / "pg_ctl", "-D", home / "data", "-w", "-t", str(START_TIMEOUT_S))
            run(*control, "-o", options, "-l", home / "log", "start")
            try:
                yield server
            finally:
                run(*control, "-m", "immediate", "stop")
        finally:
            shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path:
    found = sorted(Path(PROGRAMS).glob("*/bin/initdb"), reverse=True) if Path(PROGRAMS).is_dir() else []
    if found:
        return found[0].parent
    on_path = shutil.which("initdb")
    if on_path and (Path(on_path).resolve().parent / "pg_ctl").exists():
        return Path(on_path).resolve().parent
    raise NoPostgres("PostgreSQL is not installed (initdb and pg_ctl are neither in PATH nor in /usr/lib/postgresql)")


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres("PostgreSQL does not run as root and there is no user postgres or nobody to run it as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _runner(user: pwd.struct_passwd | None, home: Path):
    def run(*command: object) -> None:
        who = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [str(part) for part in command],
            cwd=home,
            env={**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=START_TIMEOUT_S * 2,
            check=False,
            **who,
        )
        if done.returncode != 0:
            raise NoPostgres(f"PostgreSQL does not start here: {done.stdout.strip().splitlines()[-1:] or command}")

    return run
