"""Each row of the lifecycle page that the runner is built from, on real processes.

The page (its table of crash detection, its list of stop steps, its list of teardown additions, its rule on stopped
models and its error states) is named in each docstring; where the contract decides otherwise, that is what is shown.
"""

import asyncio
import os
import signal

import pytest
from runner_world import World, living, until

from moorage.domain.errors import MaxRestartsExceeded, ModelNotStarted, ModelShutdown
from moorage.domain.lifecycles.runner import RUNNER
from moorage.domain.states import RunnerState as S

# State machine


async def test_a_start_is_loading_until_health_and_warm_up_are_over(world: World) -> None:
    """`start(model)` → loading → /health OK + warm-up delay → running."""
    runner = world.runner(warmup_delay=7.0)
    starting = asyncio.create_task(runner.start("m", world.fake()))
    await until(world.clock.asleep)
    assert runner.state("m") == S.LOADING
    world.clock.advance(7.0)
    assert await starting == S.RUNNING
    await until(lambda: world.path_of("m") == ["loading", "running"])


async def test_every_change_told_is_a_row_of_the_table(world: World) -> None:
    """The diagram, as data: nothing moves outside of it, whatever happens."""
    runner = world.runner(restart_limit=1, restart_delay=0)
    await runner.start("m", world.fake())
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(lambda: runner.info("m").restarts == 1 and runner.state("m") == S.RUNNING)
    await runner.stop("m")
    await runner.start("m")
    await runner.shutdown()
    await until(lambda: len(world.told) >= 8)
    for change in world.told:
        assert RUNNER.allows(change.source, change.target, change.trigger)
        assert change.reason.message
    assert [change.seq for change in world.told] == list(range(1, len(world.told) + 1))


# Crash detection by backend: Process


@pytest.mark.parametrize("delay", [0.0, 5.0])
async def test_a_crashed_process_is_restarted_on_the_same_port_and_runs_again(world: World, delay: float) -> None:
    """Process row: on unexpected exit it is restarted; *reuses same port*. It passes readiness again and is running."""
    runner = world.runner(restart_delay=delay)
    await runner.start("m", world.fake())
    before = runner.info("m")
    os.kill(before.pid, signal.SIGKILL)
    if delay:
        await until(world.clock.asleep)
        assert runner.state("m") == S.LOADING
        assert runner.info("m").next_restart_at > world.clock.now()
        world.clock.advance(delay)
    await until(lambda: runner.info("m").restarts == 1 and runner.state("m") == S.RUNNING)
    after = runner.info("m")
    assert (after.port, after.restarts, after.next_restart_at) == (before.port, 1, None)
    assert after.pid != before.pid
    assert not living(before.pid)
    assert (await runner.ainvoke("m", prompt="hi", max_tokens=2))["choices"][0]["message"]["content"] == "word0 word1"
    await until(lambda: world.path_of("m") == ["loading", "running", "loading", "running"])


@pytest.mark.parametrize("delay", [0.0, 5.0])
@pytest.mark.parametrize("limit", [0, 1, 4])
async def test_a_restart_limit_of_n_gives_exactly_n_restarts(world: World, limit: int, delay: float) -> None:
    """Process row: *up to `restart_limit` restarts spaced by `restart_delay`*: 4 means up to 5 starts."""
    runner = world.runner(restart_limit=limit, restart_delay=delay)
    starting = asyncio.create_task(runner.start("m", world.shell("exit 3", ready_path="/health")))
    await until(runner.states)
    for n in range(limit if delay else 0):
        await until(lambda n=n: runner.info("m").restarts == n + 1 and world.clock.asleep())
        assert len(world.starts()) == n + 1, "it did not wait for its delay"
        world.clock.advance(delay)
    with pytest.raises(MaxRestartsExceeded):
        await starting
    assert runner.state("m") == S.ERROR
    assert len(world.starts()) == limit + 1
    assert len({port for _, port in world.starts()}) == 1
    info = runner.info("m")
    assert (info.restarts, info.last_failure.exit_code, info.last_failure.oom) == (limit, 3, False)
    await until(lambda: world.path_of("m") == ["loading"] * (limit + 1) + ["error"])


async def test_the_default_limit_is_four_restarts_five_seconds_apart(world: World) -> None:
    """The defaults of the settings, as the page has them."""
    settings = world.runner().settings
    assert (settings.restart_limit, settings.restart_delay, settings.restart_reset) == (4, 5.0, 600.0)
    assert (settings.ready_timeout, settings.ready_interval, settings.warmup_delay) == (120.0, 0.1, 0.0)
    assert (settings.port_drain_timeout, settings.stop_signal, settings.restart_on) == (20.0, "SIGHUP", "failure")
    assert type(settings)().shutdown_timeout == 20.0
    assert tuple(type(settings)().ports) == tuple(range(18000, 18032))


async def test_running_for_restart_reset_gives_all_restarts_back(world: World) -> None:
    """Contract: running 600 s sets the count to 0."""
    runner = world.runner(restart_limit=1, restart_delay=0)
    await runner.start("m", world.fake())
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(lambda: runner.state("m") == S.RUNNING and runner.info("m").restarts == 1)
    world.clock.advance(600.0)
    assert runner.info("m").restarts == 0
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(lambda: runner.state("m") == S.RUNNING and runner.info("m").restarts == 1)
    os.kill(runner.info("m").pid, signal.SIGKILL)
    await until(lambda: runner.state("m") == S.ERROR)


async def test_exit_zero_that_nobody_asked_for_is_stopped_without_a_restart(world: World) -> None:
    """Process row: *unexpected exit (non-zero)*; contract: exit 0 of a server nobody stopped is stopped."""
    runner = world.runner(restart_delay=0)
    await runner.start("m", world.shell(f"read line < {_fifo(world)}; exit 0"))
    _feed(world)
    await until(lambda: runner.state("m") == S.STOPPED)
    assert len(world.starts()) == 1
    with pytest.raises(ModelNotStarted):
        await runner.ainvoke("m", prompt="hi")


@pytest.mark.parametrize("code", [0, 1])
async def test_restart_on_always_restarts_both(world: World, code: int) -> None:
    """Contract: `restart_on: always` restarts exit 0 and failures alike, within the limit."""
    runner = world.runner(restart_delay=0, restart_limit=2, restart_on="always")
    with pytest.raises(MaxRestartsExceeded):
        await runner.start("m", world.shell(f"exit {code}", ready_path="/health"))
    assert len(world.starts()) == 3


# Shutdown sequencing (stop / stop_all)


async def test_stopping_is_written_first_so_that_nobody_restarts_it(world: World) -> None:
    """Stop step 1: *state transitions to STOPPING immediately*. Also what crashes in its stop stays stopped."""
    runner = world.runner(restart_delay=0)
    await runner.start("m", world.server("crash-in-stop"))
    stopping = asyncio.create_task(runner.stop("m"))
    await asyncio.sleep(0)
    assert runner.state("m") == S.STOPPING
    assert await stopping == S.RUNNING
    await until(lambda: world.path_of("m") == ["loading", "running", "stopping", "stopped"])
    assert runner.info("m").restarts == 0


async def test_a_process_gets_sighup_in_its_group(world: World) -> None:
    """Stop step 2, process: *SIGHUP to process group*."""
    runner = world.runner()
    await runner.start("m", world.server())
    await runner.stop("m")
    assert "asked to end" in (await runner.logs("m")).lines


async def test_a_process_that_ignores_signals_is_killed_after_the_timeout(world: World) -> None:
    """Stop step 2, process: *waits up to shutdown_timeout → escalates to SIGKILL if still running*."""
    runner = world.runner(shutdown_timeout=0.2)
    await runner.start("m", world.server("deaf"))
    pid = runner.info("m").pid
    assert await runner.stop("m") == S.RUNNING
    assert not living(pid)
    assert runner.info("m").pid is None


async def test_after_the_stop_the_port_is_free_and_the_state_is_stopped(world: World) -> None:
    """Stop step 3: *state transitions to STOPPED. Port is released*."""
    runner = world.runner()
    await runner.start("m", world.fake())
    port = runner.info("m").port
    await runner.stop("m")
    assert runner.state("m") == S.STOPPED
    (await asyncio.start_server(lambda *_: None, "127.0.0.1", port)).close()


async def test_stop_tells_the_state_before_and_may_be_repeated(world: World) -> None:
    """Contract: returns the previous state; idempotent."""
    runner = world.runner()
    await runner.start("m", world.fake())
    assert [await runner.stop("m"), await runner.stop("m")] == [S.RUNNING, S.STOPPED]


async def test_stop_all_stops_every_model(world: World) -> None:
    """`stop_all` has the same steps for each."""
    runner = world.runner()
    await asyncio.gather(runner.start("a", world.fake()), runner.start("b", world.fake()))
    assert await runner.stop_all() == {"a": S.RUNNING, "b": S.RUNNING}
    assert runner.states() == {"a": S.STOPPED, "b": S.STOPPED}


# Full teardown (shutdown)


async def test_shutdown_ends_every_watcher_and_forgets_every_model(world: World) -> None:
    """Teardown 1 and 2: *all watcher tasks are cancelled and awaited*; the models are cleared."""
    runner = world.runner()
    before = asyncio.all_tasks()
    await asyncio.gather(runner.start("a", world.fake()), runner.start("b", world.fake()))
    pids = [runner.info(name).pid for name in "ab"]
    await runner.shutdown()
    assert runner.states() == {}
    assert not any(living(pid) for pid in pids)
    assert {task for task in asyncio.all_tasks() if not task.done()} <= before


async def test_nothing_starts_after_shutdown(world: World) -> None:
    """Teardown: *models cannot be restarted after shutdown*."""
    runner = world.runner()
    await runner.start("m", world.fake())
    await runner.shutdown()
    for use in (runner.start("m", world.fake()), runner.restart("m"), runner.ainvoke("m", prompt="hi")):
        with pytest.raises(ModelShutdown):
            await use
    await runner.shutdown()


async def test_shutdown_in_the_middle_of_a_start_leaves_nothing(world: World) -> None:
    runner = world.runner()
    starting = asyncio.create_task(runner.start("m", world.shell("exec sleep 1000", ready_path="/health")))
    await until(world.starts)
    await runner.shutdown()
    with pytest.raises((ModelShutdown, ModelNotStarted)):
        await starting
    assert not living(world.starts()[0][0])


# Stopped models are restartable


async def test_a_stopped_model_starts_again_in_place_on_the_same_port(world: World) -> None:
    """*Calling start() again on a stopped model restarts it in-place on the same port.*"""
    runner = world.runner()
    await runner.start("a", world.fake())
    port = runner.info("a").port
    await runner.stop("a")
    await runner.start("b", world.fake())
    assert runner.info("b").port != port, "a stopped model keeps its port"
    await runner.start("a")
    assert (runner.state("a"), runner.info("a").port) == (S.RUNNING, port)


# Error states


async def test_a_model_whose_restarts_are_spent_says_so_to_its_callers(world: World) -> None:
    """The page's example: *Model exhausted restart attempts*; `start` says it first, and every request after it."""
    runner = world.runner(restart_limit=1, restart_delay=0)
    with pytest.raises(MaxRestartsExceeded, match="Exited with code 1"):
        await runner.start("unstable-model", world.shell("echo why it dies; exit 1", ready_path="/health"))
    with pytest.raises(MaxRestartsExceeded, match="why it dies"):
        await runner.ainvoke("unstable-model", prompt="hi")
    assert runner.info("unstable-model").last_failure.log == "why it dies"


async def test_a_failed_model_starts_again_with_all_its_restarts(world: World) -> None:
    """Contract: error → loading (start)."""
    runner = world.runner(restart_limit=1, restart_delay=0)
    flag = world.folder / "mended"
    spec = world.shell(f"test -e {flag} || exit 1; exec sleep 1000")
    await _until_error(runner, spec)
    flag.touch()
    assert await runner.start("m") == S.RUNNING
    assert runner.info("m").restarts == 0


async def test_a_failed_model_can_be_stopped(world: World) -> None:
    """Contract: error → stopping → stopped."""
    runner = world.runner(restart_limit=0)
    await _until_error(runner, world.shell("exit 1"))
    assert await runner.stop("m") == S.ERROR
    assert runner.state("m") == S.STOPPED


async def _until_error(runner, spec) -> None:
    """It may have been running for a moment, so its start may or may not have failed."""
    await asyncio.gather(runner.start("m", spec), return_exceptions=True)
    await until(lambda: runner.state("m") == S.ERROR)


def _fifo(world: World) -> str:
    path = world.folder / "fifo"
    os.mkfifo(path)
    return str(path)


def _feed(world: World) -> None:
    (world.folder / "fifo").write_text("end\n")
