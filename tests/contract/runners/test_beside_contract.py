"""Commands beside what is hosted: one suite for processes, podman and docker, on the real things."""

import asyncio
import os
import signal

import pytest
from host_world import PATIENCE_S, until, within

from moorage.domain.errors import RunnerError
from moorage.runners.identity import alive
from moorage.runners.port import Command, CommandOrder
from moorage.runners.shimming.kernel import start_ticks

STAYS = "echo up; exec sleep 1000"


async def whole(command: Command) -> tuple[int, bytes, bytes, str]:
    """Exit code, output and errors of a command, and why it was not executed."""
    found = {1: b"", 2: b""}

    async def read() -> None:
        while (piece := await command.read()) is not None:
            found[piece[0]] += piece[1]

    async with asyncio.timeout(PATIENCE_S):
        await read()
        how = await command.exit()
    return how.code, found[1], found[2], how.error


def sh(code: str, **given: object) -> CommandOrder:
    return CommandOrder(("/bin/sh", "-c", code), **{"stdin": False, **given})


async def read_until(command: Command, wanted: bytes, so_far: bytes = b"") -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        while wanted not in so_far:
            piece = await command.read()
            assert piece is not None, so_far
            so_far += piece[1]
    return so_far


async def test_streams_are_kept_apart_and_the_exit_code_is_told(any_world):
    hosted = await any_world.shell(STAYS, env={"ITS_OWN": "value"})
    command = await hosted.beside(sh("echo out $ITS_OWN; echo err >&2; exit 7"))
    assert await whole(command) == (7, b"out value\n", b"err\n", "")


async def test_input_is_read_to_its_end_and_large_output_arrives_whole(any_world):
    hosted = await any_world.shell(STAYS)
    command = await hosted.beside(sh("cat", stdin=True))
    text = os.urandom(3_000_000)

    async def feed() -> None:
        for start in range(0, len(text), 30_000):
            await command.write(text[start : start + 30_000])
        await command.close_input()

    feeding = asyncio.create_task(feed())
    code, out, _, _ = await whole(command)
    await feeding
    assert (code, out == text) == (0, True)


async def test_a_command_that_is_not_there_is_127_with_its_name(any_world):
    hosted = await any_world.shell(STAYS)
    code, _, _, error = await whole(await hosted.beside(CommandOrder(("no-such-command",), stdin=False)))
    assert code == 127
    assert "no-such-command" in error


async def test_a_terminal_has_its_size_follows_it_and_a_ctrl_c_ends_the_program_in_it(any_world):
    hosted = await any_world.shell(STAYS)
    # An engine may give the first size a moment after the start, as it does for its own command line.
    sized = "until stty size 2>/dev/null | grep '{}'; do sleep 0.05; done; "
    code = sized.format("33 77") + "read x; " + sized.format("40 100") + "echo now; cat"
    command = await hosted.beside(sh(code, tty=True, stdin=True, rows=33, columns=77, term="xterm"))
    await read_until(command, b"33 77")
    await command.resize(40, 100)
    await command.write(b"\n")
    await read_until(command, b"now")
    await command.write(b"echoed\n")
    await read_until(command, b"echoed\r\nechoed")  # by the terminal and by the program, which is there now
    await command.write(b"\x03")
    assert (await whole(command))[0] == 130


async def test_a_signal_reaches_a_command_without_a_terminal(any_world):
    hosted = await any_world.shell(STAYS)
    command = await hosted.beside(sh("trap 'echo got it; exit 5' INT; echo ready; while :; do sleep 0.05; done"))
    told = await read_until(command, b"ready")
    await command.signal(signal.SIGINT)
    code, out, _, _ = await whole(command)
    assert (code, b"got it" in told + out) == (5, True)


async def test_a_command_ends_with_what_it_runs_beside(any_world):
    hosted = await any_world.shell(STAYS)
    command = await hosted.beside(sh("echo ready; exec sleep 999"))
    await read_until(command, b"ready")
    ended = asyncio.create_task(whole(command))
    await hosted.stop(signal.SIGKILL, 0.0)
    await within(hosted.gone)
    assert (await ended)[0] != 0


async def test_nobody_connected_ends_a_command_that_will_not_go(any_world):
    hosted = await any_world.shell(STAYS)
    command = await hosted.beside(sh("trap '' HUP TERM; echo $$; while :; do sleep 0.05; done"))
    await read_until(command, b"\n")
    async with asyncio.timeout(PATIENCE_S):
        await command.end(0.3)
        assert (await command.exit()).code == 137
    assert hosted.alive


async def test_beside_what_has_ended_nothing_is_run(any_world):
    hosted = await any_world.shell("exit 0")
    await within(hosted.gone)
    with pytest.raises(RunnerError):
        await hosted.beside(sh("true"))


async def test_a_command_is_born_where_its_worker_is_and_sees_what_it_sees(world, tmp_path):
    hosted = await world.start("/bin/sh", "-c", STAYS, workdir=str(tmp_path), env={"CUDA_VISIBLE_DEVICES": "3"})
    code, out, _, _ = await whole(await hosted.beside(sh("pwd; echo $CUDA_VISIBLE_DEVICES; cat /proc/self/cgroup")))
    folder, gpus, *groups = out.decode().splitlines()
    assert (code, folder, gpus) == (0, str(tmp_path), "3")
    if hosted.identity.cgroup:
        assert any(line.endswith(hosted.identity.cgroup.rpartition("/")[2]) for line in groups)


async def test_a_command_goes_with_the_program_that_is_connected_to_it(world, tmp_path):
    """Its agent is killed: nobody could see or end it any more."""
    hosted = await world.start("/bin/sh", "-c", STAYS)
    code = f"""
import asyncio
from pathlib import Path
from moorage.clock import SystemClock
from moorage.runners.port import CommandOrder
from moorage.runners.process import ProcessHost
async def main():
    hosted = await ProcessHost(SystemClock(), spare=False).adopt(Path({str(hosted.folder)!r}), {hosted.cookie!r})
    command = await hosted.beside(CommandOrder(("sleep", "998"), stdin=False))
    print(command.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    import sys

    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(await asyncio.wait_for(owner.stdout.readline(), PATIENCE_S))
    ticks = start_ticks(pid)
    owner.kill()
    await owner.wait()
    await until(lambda: not alive(pid, ticks))
    assert hosted.seen_alive()
