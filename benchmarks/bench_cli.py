"""How long `moor` takes to start, beside bare Python and one import, interleaved in one run: `make bench-cli`.

Every round starts each program once, in a fresh process, in an order that is drawn anew, so that a busy moment of the
machine falls on all alike. CPU seconds (user + system of the child) are what is compared; wall time is shown beside.
`moor ls` talks to a control plane of one canned empty answer inside this process: the network and the server's own work
are not what is measured. Prints a table and lines `RATIO name value target`; the exit code says whether all hold.

    .venv/bin/python benchmarks/bench_cli.py [--rounds 25]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MOOR = str(Path(sys.executable).with_name("moor"))

TARGETS = (
    ("cli_version_vs_pass", "moor --version", "python -c pass", 4.0),
    ("cli_help_vs_import_click", "moor --help", "python -c 'import click'", 1.5),
    ("cli_ls_vs_import_httpx", "moor ls", "python -c 'import httpx'", 1.3),
)
"""Name of the ratio, what is measured, the floor beside it, at most."""


@dataclass
class Program:
    """One command line, and what its starts cost so far (seconds)."""

    command: list[str]
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def start(self, env: Mapping[str, str]) -> None:
        """Run it once to its end."""
        began = time.perf_counter()
        child = subprocess.Popen(self.command, env=dict(env), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = child.stderr.read().decode() if child.stderr else ""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(self.command)} ended with exit code {child.returncode}:\n{said}")
        self.wall_s.append(time.perf_counter() - began)
        self.cpu_s.append(usage.ru_utime + usage.ru_stime)

    @property
    def cpu_ms(self) -> float:
        """Median CPU of one start."""
        return statistics.median(self.cpu_s) * 1000

    @property
    def wall_ms(self) -> float:
        """Median wall time of one start."""
        return statistics.median(self.wall_s) * 1000


class Empty(BaseHTTPRequestHandler):
    """A control plane that has nothing to list."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"items": [], "next": None}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the table is the output."""


def main() -> int:
    """Measure, print, and compare with the targets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="starts of each program (at least 15)")
    rounds = max(15, parser.parse_args().rounds)
    programs = {
        "python -c pass": Program([sys.executable, "-c", "pass"]),
        "python -c 'import click'": Program([sys.executable, "-c", "import click"]),
        "python -c 'import httpx'": Program([sys.executable, "-c", "import httpx"]),
        "moor --version": Program([MOOR, "--version"]),
        "moor --help": Program([MOOR, "--help"]),
        "moor ls": Program([MOOR, "ls"]),
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "MOORAGE_HOME": home, "MOORAGE_URL": f"http://127.0.0.1:{server.server_port}"}
        measure(programs, env, rounds)
    server.shutdown()
    return report(programs, rounds)


def measure(programs: Mapping[str, Program], env: Mapping[str, str], rounds: int) -> None:
    """All programs once a round; a first round fills the page cache and the .pyc files and is not counted."""
    order = list(programs.values())
    for counted in [False] + [True] * rounds:
        random.shuffle(order)
        for program in order:
            program.start(env)
            if not counted:
                program.cpu_s.clear()
                program.wall_s.clear()


def report(programs: Mapping[str, Program], rounds: int) -> int:
    """The table and the ratios; 0 when all targets hold."""
    floor = programs["python -c pass"]
    print(f"start-up, median of {rounds} interleaved starts, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    print(f"{'program':<28} {'CPU ms':>8} {'wall ms':>8} {'× pass':>7}")
    for name, program in programs.items():
        print(f"{name:<28} {program.cpu_ms:8.1f} {program.wall_ms:8.1f} {program.cpu_ms / floor.cpu_ms:7.2f}")
    held = True
    for name, ours, theirs, at_most in TARGETS:
        ratio = programs[ours].cpu_ms / programs[theirs].cpu_ms
        held = held and ratio <= at_most
        print(f"RATIO {name} {ratio:.2f} <={at_most}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
