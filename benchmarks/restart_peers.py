"""What else restarts a program on one machine, for `bench_runner.py`: a bare loop, supervisord and circus.

The two supervisors are installed from the package index into an environment of their own, at the newest release that
there is; where they cannot be had, the benchmark says so and goes on.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stamping_program import make, read

LIMIT_S = 30.0


def until(condition: Callable[[], object], what: str) -> object:
    """Wait for a condition, bounded."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if found := condition():
            return found
        threading.Event().wait(0.002)
    raise SystemExit(f"gave up waiting for {what}")


def bare_ms(folder: Path) -> float:
    """kill → pidfd readable → posix_spawn → first instruction: what no supervisor can go below."""
    stamps = folder / "bare.stamps"
    program = folder / "bare"
    if not program.exists():
        make(program, stamps)
    seen = len(read(stamps))
    pid = os.posix_spawn(program, [str(program)], {})
    until(lambda: len(read(stamps)) == seen + 1, "the bare program")
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    killed = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    poll.poll()
    os.waitpid(pid, 0)
    replacement = os.posix_spawn(program, [str(program)], {})
    until(lambda: len(read(stamps)) == seen + 2, "its replacement")
    os.close(pidfd)
    os.kill(replacement, signal.SIGKILL)
    os.waitpid(replacement, 0)
    return (read(stamps)[-1][0] - killed) / 1e6


def install(folder: Path) -> Path | None:
    """An environment with both supervisors, or None where the package index cannot be reached."""
    home = folder / "peers"
    made = subprocess.run([sys.executable, "-m", "venv", str(home)], capture_output=True, check=False)
    if made.returncode:
        return None
    pip = [str(home / "bin" / "python"), "-m", "pip", "-q", "install", "supervisor", "circus"]
    try:
        done = subprocess.run(pip, capture_output=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        return None
    return home if done.returncode == 0 else None


def supervised_ms(command: list[str], stamps: Path, kills: int) -> list[float]:
    """Kill what a supervisor has started, so many times; each time to the replacement's first instruction."""
    supervisor = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        out = []
        until(lambda: read(stamps), f"{command[0]} to start the program")
        for _ in range(kills):
            seen = len(read(stamps))
            killed = time.monotonic_ns()
            os.kill(read(stamps)[-1][1], signal.SIGKILL)
            until(lambda seen=seen: len(read(stamps)) > seen, f"{command[0]} to restart the program")
            out.append((read(stamps)[-1][0] - killed) / 1e6)
        return out
    finally:
        supervisor.terminate()
        try:
            supervisor.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()


def supervisord_ms(peers: Path, folder: Path, kills: int) -> list[float]:
    """supervisord with `autorestart`, and without its own start delay."""
    stamps = folder / "supervisord.stamps"
    program = make(folder / "supervisord-program", stamps)
    config = folder / "supervisord.conf"
    config.write_text(
        f"[supervisord]\nnodaemon=true\nlogfile={folder}/supervisord.log\npidfile={folder}/supervisord.pid\n"
        f"[program:one]\ncommand={program}\nautorestart=true\nstartsecs=0\nstartretries=1000\n"
    )
    return supervised_ms([str(peers / "bin" / "supervisord"), "-c", str(config)], stamps, kills)


def circus_ms(peers: Path, folder: Path, kills: int) -> list[float]:
    """circusd with its defaults."""
    stamps = folder / "circus.stamps"
    program = make(folder / "circus-program", stamps)
    config = folder / "circus.ini"
    ends = "\n".join(f"{name} = ipc://{folder}/{name}" for name in ("endpoint", "pubsub_endpoint"))
    config.write_text(f"[circus]\n{ends}\n[watcher:one]\ncmd = {program}\nnumprocesses = 1\nmax_retry = -1\n")
    return supervised_ms([str(peers / "bin" / "circusd"), str(config)], stamps, kills)
