"""Sequences that break runners: what happens between the rows of the lifecycle."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from runner_world import PATIENCE_S, World, living, until

from moorage.domain.errors import (
    Conflict,
    InvalidSpec,
    MaxRestartsExceeded,
    ModelNotStarted,
    PortUnavailable,
    RunnerError,
    ServerReadyTimeout,
)
from moorage.domain.states import RunnerState as S
from moorage.runners import ModelSpec
from tests.ports import free_ports

# Restarts and stops that meet


async def test_a_stop_during_back_off_stays_stopped(world: World) -> None:
    runner = world.runner(restart_delay=5.0)
    await runner.start("m", world.fake())
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(world.clock.asleep)
    assert await runner.stop("m") == S.LOADING
    world.clock.advance(600.0)
    assert not world.clock.asleep(), "somebody still waits to restart it"
    assert (runner.state("m"), runner.info("m").next_restart_at) == (S.STOPPED, None)
    await until(lambda: world.path_of("m") == ["loading", "running", "loading", "stopping", "stopped"])


@pytest.mark.parametrize("round_", range(5))
async def test_a_crash_and_a_stop_at_the_same_time_end_stopped(world: World, round_: int) -> None:
    """The shim may restart it by itself just before it reads the stop."""
    runner = world.runner(restart_delay=0)
    await runner.start("m", world.shell("exec sleep 1000"))
    await until(lambda: len(world.starts()) == 1)
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await runner.stop("m")
    assert runner.state("m") == S.STOPPED
    assert not any(living(pid) for pid, _ in world.starts())


async def test_a_crash_in_a_stop_is_a_stop(world: World) -> None:
    runner = world.runner(restart_delay=0)
    await runner.start("m", world.server("crash-in-stop"))
    await runner.stop("m")
    assert (runner.state("m"), runner.info("m").last_failure) == (S.STOPPED, None)


async def test_a_stop_while_it_loads_ends_the_start_with_an_error(world: World) -> None:
    runner = world.runner()
    starting = asyncio.create_task(runner.start("m", world.fake("--delay-ready", "1000")))
    await until(lambda: runner.states() and runner.info("m").pid)
    assert await runner.stop("m") == S.LOADING
    with pytest.raises(ModelNotStarted):
        await starting
    assert runner.state("m") == S.STOPPED


async def test_a_start_after_a_stop_that_is_under_way_wins(world: World) -> None:
    runner = world.runner(shutdown_timeout=PATIENCE_S)
    await runner.start("m", world.server("holds-its-stop"))
    stopping = asyncio.create_task(runner.stop("m"))
    await until(lambda: runner.state("m") == S.STOPPING)
    starting = asyncio.create_task(runner.start("m"))
    await asyncio.sleep(0)
    assert not stopping.done()
    world.let_go()
    assert await starting == S.RUNNING
    assert await stopping == S.RUNNING
    await until(lambda: world.path_of("m") == ["loading", "running", "stopping", "stopped", "loading", "running"])


async def test_many_restarts_of_one_model_leave_one_server(world: World) -> None:
    runner = world.runner(restart_delay=0, restart_limit=50)
    await runner.start("m", world.shell("exec sleep 1000"))
    for n in range(12):
        await until(lambda n=n: len(world.starts()) == n + 1 and runner.info("m").restarts == n)
        await until(lambda: runner.state("m") == S.RUNNING)
        os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(lambda: len(world.starts()) == 13 and runner.info("m").restarts == 12)
    await until(lambda: runner.state("m") == S.RUNNING)
    assert [pid for pid, _ in world.starts() if living(pid)] == [runner.info("m").pid]
    assert len({port for _, port in world.starts()}) == 1


# Starts that meet


async def test_starts_at_the_same_time_are_one_start(world: World) -> None:
    runner = world.runner()
    spec = world.shell("exec sleep 1000")
    assert await asyncio.gather(*(runner.start("m", spec) for _ in range(5))) == [S.RUNNING] * 5
    await until(world.starts)
    await runner.start("m", spec)
    assert len(world.starts()) == 1


async def test_a_start_of_a_healthy_model_does_nothing(world: World) -> None:
    runner = world.runner()
    await runner.start("m", world.server())
    pid = runner.info("m").pid
    assert await runner.start("m") == S.RUNNING
    assert runner.info("m").pid == pid


async def test_a_start_of_an_unhealthy_model_restarts_it(world: World) -> None:
    runner = world.runner(restart_delay=0, restart_limit=100)  # the new one may be asked before the engine is back
    await runner.start("m", world.server())
    pid = runner.info("m").pid
    world.health("502 the engine is dead")
    both = asyncio.gather(runner.start("m"), runner.start("m"))
    await until(lambda: runner.info("m").pid not in (pid, None))
    world.health(None)
    assert await both == [S.RUNNING, S.RUNNING]
    assert not living(pid)


async def test_another_spec_is_taken_at_rest_and_refused_while_it_runs(world: World) -> None:
    runner = world.runner()
    await runner.start("m", world.fake())
    with pytest.raises(Conflict, match="another spec"):
        await runner.start("m", world.fake("--chunks", "3"))
    await runner.stop("m")
    await runner.start("m", world.fake("--chunks", "3"))
    assert "3" in (await runner.request("m", "GET", "/stats")).json()["argv"]


# What cannot start


async def test_a_missing_binary_is_told_at_once_and_nothing_is_retried(world: World) -> None:
    runner = world.runner(restart_delay=0)
    other = asyncio.create_task(runner.start("other", world.fake()))
    with pytest.raises(RunnerError, match="no-such-server") as told:
        await runner.start("m", ModelSpec(["/opt/no-such-server", "--port", "{port}"]))
    assert (told.value.code, runner.state("m"), runner.info("m").restarts) == ("start_failed", S.ERROR, 0)
    assert runner.info("m").last_failure.exit_code == 127
    assert await other == S.RUNNING


async def test_a_port_that_a_stranger_has_is_skipped(world: World) -> None:
    ports = free_ports(2)
    with _listener(ports[0]):
        runner = world.runner(ports=ports)
        await runner.start("m", world.fake())
        assert runner.info("m").port == ports[1]


async def test_a_spent_pool_says_who_holds_what(world: World) -> None:
    ports = free_ports(2)
    with _listener(ports[0]):
        runner = world.runner(ports=ports)
        await runner.start("a", world.fake())
        with pytest.raises(PortUnavailable) as told:
            await runner.start("b", world.fake())
    assert f"{ports[1]}: a" in told.value.message
    assert f"{ports[0]}: " in told.value.message
    assert f"pid {os.getpid()}" in told.value.message
    assert runner.state("b") == S.ERROR


async def test_a_fixed_port_that_is_taken_is_an_error(world: World) -> None:
    (port,) = free_ports(1)
    with _listener(port), pytest.raises(PortUnavailable, match=str(port)):
        await world.runner().start("m", world.fake(port=port))


async def test_a_stranger_on_the_port_of_a_stopped_model_moves_it(world: World) -> None:
    runner = world.runner(port_drain_timeout=0.0)
    await runner.start("m", world.fake())
    port = runner.info("m").port
    await runner.stop("m")
    with _listener(port):
        assert await runner.start("m") == S.RUNNING
        assert runner.info("m").port != port


# Readiness


async def test_a_crash_while_loading_is_restarted_within_the_limit(world: World) -> None:
    runner = world.runner(restart_limit=2, restart_delay=0)
    with pytest.raises(MaxRestartsExceeded):
        await runner.start("m", world.fake("--delay-ready", "1000", "--exit-after", "0.01", "--exit-code", "9"))
    assert (runner.info("m").restarts, runner.info("m").last_failure.exit_code) == (2, 9)
    await until(lambda: world.path_of("m") == ["loading", "loading", "loading", "error"])


async def test_a_server_that_is_not_ready_in_time_is_ended_and_counts(world: World) -> None:
    runner = world.runner(restart_limit=1, restart_delay=0, ready_timeout=600.0)
    starting = asyncio.create_task(runner.start("m", world.shell("exec sleep 1000", ready_path="/health")))
    for n in range(2):
        await until(lambda n=n: len(world.starts()) == n + 1 and runner.info("m").restarts == n)
        await until(lambda: runner.info("m").reason.code == "ready.waiting")
        world.clock.advance(600.0)
    with pytest.raises(ServerReadyTimeout):
        await starting
    assert len(world.starts()) == 2
    assert not any(living(pid) for pid, _ in world.starts())
    with pytest.raises(MaxRestartsExceeded):
        await runner.ainvoke("m", prompt="hi")


@pytest.mark.parametrize("said", ["502 bad gateway", "504 too late", '200 {"error": {"message": "no weights"}}'])
async def test_a_server_that_says_it_cannot_serve_fails_now(world: World, said: str) -> None:
    world.health(said)
    runner = world.runner(restart_limit=0)
    with pytest.raises(MaxRestartsExceeded):
        await runner.start("m", world.server())
    assert runner.info("m").last_failure.reason.code == "ready.failed"


@pytest.mark.parametrize("said", ["503 later", '200 {"status": "loading model"}', "404 none"])
async def test_a_server_that_says_it_loads_is_waited_for(world: World, said: str) -> None:
    world.health(said)
    runner = world.runner()
    starting = asyncio.create_task(runner.start("m", world.server()))
    await until(lambda: runner.states() and runner.info("m").reason.code == "ready.waiting")
    assert runner.state("m") == S.LOADING
    world.health(None)
    assert await starting == S.RUNNING


async def test_a_server_of_another_model_is_not_ready(world: World) -> None:
    runner = world.runner(restart_limit=0)
    with pytest.raises(RunnerError, match="other"):
        await runner.start("m", world.fake("--wrong-model", "other"))


# Trees


async def test_a_server_that_forks_a_daemon_leaves_nothing(world: World) -> None:
    """A grandchild in a session of its own that ignores signals: neither a stop nor a crash leaves it."""
    runner = world.runner(restart_delay=0)
    pidfile = world.folder / "daemon"
    await runner.start("m", world.fake("--fork-daemon", str(pidfile)))
    first = int(await until(lambda: pidfile.exists() and pidfile.read_text()))
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(lambda: runner.info("m").restarts == 1 and runner.state("m") == S.RUNNING)
    assert not living(first)
    second = int(await until(lambda: pidfile.read_text() != str(first) and pidfile.read_text()))
    await runner.stop("m")
    assert not living(second)


async def test_no_zombie_is_left_of_anything(world: World) -> None:
    runner = world.runner(restart_delay=0)
    before = _children()
    await runner.start("m", world.fake())
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(lambda: runner.info("m").restarts == 1 and runner.state("m") == S.RUNNING)
    await runner.shutdown()
    await until(lambda: _children() <= before)


# Logs and events


async def test_log_numbers_go_on_over_restarts_and_what_is_gone_is_told(world: World) -> None:
    runner = world.runner(restart_delay=0, restart_limit=9)
    spec = world.shell("for i in 1 2 3; do echo line $i; done; exec sleep 1000")
    await runner.start("m", spec)
    for n in range(2):
        await until(lambda n=n: len(world.starts()) == n + 1 and runner.info("m").restarts == n)
        await _until_lines(runner, 3 * (n + 1))
        os.kill(world.starts()[n][0], signal.SIGKILL)
    await until(lambda: runner.info("m").restarts == 2 and runner.state("m") == S.RUNNING)
    for n in range(3):
        await _until_lines(runner, 3 * (n + 3))  # it runs as soon as it executes, before it has written a line
        await runner.restart("m")
    found = await _until_lines(runner, 18)
    assert (found.next_seq, found.missed) == (19, 0)
    kept = await runner.logs("m", lines=1000, after=0)
    assert kept.missed == kept.first_seq - 1 > 0
    assert kept.lines == tuple(f"line {1 + (seq - 1) % 3}" for seq in range(kept.first_seq, kept.next_seq))
    assert (await runner.logs("m", lines=2)).lines == ("line 2", "line 3")
    assert (await runner.logs("m", lines=10, after=16)).lines == ("line 2", "line 3")
    assert (await runner.logs("m", lines=10, after=18)).lines == ()


async def test_the_last_words_are_those_of_the_start_that_failed(world: World) -> None:
    runner = world.runner(restart_delay=0, restart_limit=9)
    # The last whole line and what follows it are one write: who sees the one line has the other too.
    spec = world.shell("for i in $(seq 79); do echo $$ $i; done; printf '%s 80\\nend' $$; exec sleep 1000")
    await runner.start("m", spec)
    for n in range(3):
        await until(lambda n=n: len(world.starts()) == n + 1 and runner.info("m").restarts == n)
        pid = world.starts()[n][0]
        await _until_lines(runner, 80 * (n + 1) + n)
        os.kill(pid, signal.SIGKILL)
        log = await until(lambda n=n: runner.info("m").restarts == n + 1 and runner.info("m").last_failure.log)
        assert log.splitlines() == [f"{pid} {i}" for i in range(32, 81)] + ["end"]


async def test_events_tell_a_slow_follower_what_it_missed(world: World) -> None:
    runner = world.runner(event_buffer=3)
    slow = runner.events()
    await runner.start("m", world.shell("exec sleep 1000"))
    await runner.restart("m")
    await runner.shutdown()
    seen = [(change.seq, change.missed) async for change in slow]
    assert seen == [(6, 5), (7, 0), (8, 0)]


# Requests


async def test_every_way_of_asking(world: World) -> None:
    runner = world.runner()
    await runner.start("m", world.fake())
    chat = await runner.ainvoke("m", messages=[{"role": "user", "content": "hi"}], max_tokens=2)
    assert chat["object"] == "chat.completion"
    text = await runner.ainvoke("m", prompt="hi", api="completion", max_tokens=2)
    assert text["choices"][0]["text"] == "word0 word1"
    chunks = [chunk async for chunk in runner.astream("m", prompt="hi", max_tokens=2)]
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["word0 ", "word1 ", None]
    assert (await runner.request("m", "GET", "/v1/models")).json()["data"][0]["id"] == "fake"
    assert (await runner.request("m", "DELETE", "/nothing")).status_code in (404, 501)
    with pytest.raises(InvalidSpec, match="prompt"):
        await runner.ainvoke("m")


async def test_a_request_waits_through_a_restart(world: World) -> None:
    runner = world.runner(restart_delay=5.0)
    await runner.start("m", world.fake())
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(world.clock.asleep)
    asking = asyncio.create_task(runner.ainvoke("m", prompt="hi", max_tokens=1))
    world.clock.advance(5.0)
    assert (await asking)["choices"]


async def test_a_stream_that_breaks_off_is_an_error_and_not_an_end(world: World) -> None:
    runner = world.runner(restart_delay=0)
    await runner.start("m", world.fake("--die-after-chunks", "2"))
    got: list[Any] = []

    async def read() -> None:
        async for chunk in runner.astream("m", prompt="hi"):
            got.append(chunk)

    with pytest.raises(RunnerError) as told:
        await read()
    assert told.value.code in ("model_unreachable", "stream_broken")
    assert len(got) == 2


async def test_a_spec_may_be_shaped_like_a_deployment(world: World) -> None:
    runner = world.runner()
    command = [sys.executable, *world.fake().command[1:]]
    await runner.start("m", {"model": {"id": "fake"}, "runtime": {"command": command, "env": {"TEST_A": "{port}"}}})
    stats = (await runner.request("m", "GET", "/stats")).json()
    assert stats["env"]["TEST_A"] == str(runner.info("m").port)
    with pytest.raises(InvalidSpec, match="comand"):
        await runner.start("n", {"comand": ["x"]})


def _listener(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen()
    return sock


def _children() -> set[str]:
    """Ours, zombies included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(path.parent.name)
    return found


async def _until_lines(runner, count: int):
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        found = await runner.logs("m", lines=1000)
        if found.next_seq > count:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"{found.next_seq - 1} lines, not {count}"
        await asyncio.sleep(0.01)
