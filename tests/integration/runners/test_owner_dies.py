"""Library mode: the program that embeds the runner is killed, and no model server is left after it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runner_world import FAKE_MODEL, PATIENCE_S, World, living, until

from tests.ports import free_ports

OWNER = """
import asyncio, os, sys
from moorage.runners import ModelRunner, ModelSpec

async def main():
    port, pidfile, how = sys.argv[1:4]
    command = [sys.executable, sys.argv[4], "--port", "{port}", "--fork-daemon", pidfile, "--ignore-sigterm"]
    runner = ModelRunner(ports=[int(port)], shutdown_timeout=1.0, stop_signal="SIGTERM")
    await runner.start("m", ModelSpec(command))
    if how == "fork" and os.fork() == 0:
        while True:
            __import__("signal").pause()
    print(runner.info("m").pid, runner._parts.home, flush=True)
    if how == "exec":
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        os.execv("/bin/sleep", ["sleep", "1000"])
    if how == "end":
        return
    await asyncio.Event().wait()

asyncio.run(main())
"""

SYNC = """
import sys
from moorage.runners import sync

runner = sync.ModelRunner(ports=[int(sys.argv[1])], shutdown_timeout=1.0, stop_signal="SIGTERM")
runner.start("m", {"command": [sys.executable, sys.argv[4], "--port", "{port}", "--fork-daemon", sys.argv[2]]})
print(runner.info("m").pid, runner._inner._parts.home, flush=True)
if sys.argv[3] == "kill":
    sys.stdin.readline()
"""


async def _owner(code: str, folder: Path, how: str) -> tuple["subprocess.Popen[bytes]", int, int, Path]:
    """The owner, its server's pid, the daemon's pid and the runner's directory."""
    (port,) = free_ports(1)
    daemon = folder / "daemon"
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(port), str(daemon), how, FAKE_MODEL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert owner.stdout is not None
    told = (await asyncio.wait_for(asyncio.to_thread(owner.stdout.readline), PATIENCE_S)).decode().split()
    pid = int(await until(lambda: daemon.exists() and daemon.read_text()))
    return owner, int(told[0]), pid, Path(told[1])


@pytest.mark.parametrize("how", ["kill", "fork"])
async def test_kill_9_of_the_program_leaves_no_server_and_no_daemon_of_it(tmp_path: Path, how: str) -> None:
    """Also where a child that it forked lives on and holds everything open that it had."""
    owner, server, daemon, home = await _owner(OWNER, tmp_path, how)
    assert living(server)
    assert living(daemon)
    forked = [child for child in _children_of(owner.pid) if b"async def main" in _command(child)]
    assert len(forked) == (how == "fork")
    try:
        owner.kill()
        await until(lambda: not living(owner.pid))
        await until(lambda: not living(server) and not living(daemon))
        assert all(living(child) for child in forked)
        await until(lambda: not home.exists())
    finally:
        for child in forked:
            os.kill(child, signal.SIGKILL)
    owner.communicate()


async def test_a_program_that_executes_another_leaves_no_server(tmp_path: Path) -> None:
    """Its pid lives on, and knows nothing of models."""
    owner, server, daemon, _ = await _owner(OWNER, tmp_path, "exec")
    assert owner.stdin is not None
    owner.stdin.write(b"now\n")
    await until(lambda: not living(server) and not living(daemon))
    assert owner.poll() is None
    owner.kill()
    owner.communicate()


@pytest.mark.parametrize(("code", "how"), [(OWNER, "end"), (SYNC, "end"), (SYNC, "kill")], ids=["end", "sync", "kill"])
async def test_a_program_that_ends_without_a_shutdown_leaves_no_server(tmp_path: Path, code: str, how: str) -> None:
    owner, server, daemon, _ = await _owner(code, tmp_path, how)
    if how == "kill":
        owner.kill()
    owner.communicate()
    await until(lambda: owner.poll() is not None)
    await until(lambda: not living(server) and not living(daemon))


async def test_a_shim_that_is_killed_takes_its_server_along_and_both_are_replaced(world: World) -> None:
    """Without its shim nothing would end a server with its owner."""
    runner = world.runner(restart_delay=0)
    await runner.start("m", world.fake())
    server = runner.info("m").pid
    shim = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shim, signal.SIGKILL)
    await until(lambda: runner.info("m").restarts == 1 and runner.state("m") == "running")
    assert not living(server)
    assert runner.info("m").last_failure.reason.code == "exit.unknown"


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _children_of(pid: int) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.add(int(path.parent.name))
    return found
