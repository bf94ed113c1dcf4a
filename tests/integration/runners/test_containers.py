"""The runner library on real engines: the rows of the lifecycle page for podman and docker."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runner_world import PATIENCE_S, World, living, until

from moorage.clock import SystemClock
from moorage.domain.errors import ImageError, MaxRestartsExceeded, RunnerError
from moorage.domain.states import RunnerState as S
from moorage.runners import ModelSpec
from tests.engines import IMAGE, Engine
from tests.ports import free_ports

ROOT = Path(__file__).parents[3]
SERVE = ("/bin/sh", "-c", "echo serving; exec httpd -f -p 127.0.0.1:{port} -h /www")

OWNER = """
import asyncio, sys
from moorage.runners import ModelRunner, ModelSpec

async def main():
    engine, socket, port, image = sys.argv[1:]
    runner = ModelRunner(ports=[int(port)], **{engine + "_socket": socket})
    command = ["/bin/sh", "-c", "exec httpd -f -p 127.0.0.1:{port} -h /www"]
    await runner.start("m", ModelSpec(command, runner=engine, image=image, pull="never"))
    print(runner.info("m").pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def _runner(world: World, engine: Engine, **settings: Any):
    socket = {f"{engine.name}_socket": str(engine.socket)}
    # Real time: an engine's polls and graces are seconds, and no test here waits for more than they do.
    given = {"clock": SystemClock(), "port_drain_timeout": 2.0, "restart_delay": 0, **settings}
    return world.runner(**socket, **given)


def _spec(engine: Engine, *command: str, **spec: Any) -> ModelSpec:
    given = {"runner": engine.name, "image": IMAGE, "pull": "never", "model": "tiny", **spec}
    return ModelSpec(command or SERVE, **given)


def _containers(engine: Engine) -> list[str]:
    with engine.client() as client:
        return [row["Id"] for row in client.get("/containers/json", params={"all": "true"}).json()]


async def test_a_container_that_dies_is_restarted_on_the_same_port_and_runs_again(world: World, engine: Engine) -> None:
    """Podman / Docker row: *on unexpected exit restarts*; then `stop` with the engine's signal and a grace."""
    runner = _runner(world, engine)
    await runner.start("m", _spec(engine))
    before = runner.info("m")
    os.kill(before.pid, signal.SIGKILL)
    await until(lambda: runner.info("m").restarts == 1 and runner.state("m") == S.RUNNING)
    after = runner.info("m")
    assert (after.port, after.last_failure.exit_code, after.last_failure.signal) == (before.port, 137, 9)
    assert (await runner.request("m", "GET", "/v1/models")).json()["data"][0]["id"] == "tiny"
    await until(lambda: world.path_of("m") == ["pulling", "loading", "running", "loading", "running"])
    assert (await runner.logs("m", after=0)).lines == ("serving", "serving")
    assert await runner.stop("m") == S.RUNNING
    assert not living(after.pid)
    assert await runner.start("m") == S.RUNNING
    assert runner.info("m").port == before.port


async def test_a_limit_of_two_gives_exactly_two_restarts(world: World, engine: Engine) -> None:
    """Podman / Docker row: *up to `restart_limit` restarts*, alike for every runner."""
    runner = _runner(world, engine, restart_limit=2)
    with pytest.raises(MaxRestartsExceeded):
        await runner.start("m", _spec(engine, "/bin/sh", "-c", "echo dying; exit 3"))
    info = runner.info("m")
    assert (info.restarts, info.last_failure.exit_code, info.last_failure.log) == (2, 3, "dying")
    await until(lambda: world.path_of("m") == ["pulling", "loading", "loading", "loading", "error"])


async def test_exit_zero_of_a_container_is_stopped(world: World, engine: Engine) -> None:
    """Contract: alike for every runner."""
    runner = _runner(world, engine)
    await asyncio.gather(runner.start("m", _spec(engine, "/bin/true", ready_path=None)), return_exceptions=True)
    await until(lambda: runner.state("m") == S.STOPPED)
    assert runner.info("m").restarts == 0


async def test_shutdown_leaves_no_container(world: World, engine: Engine) -> None:
    """Teardown 3: *force-removes them*."""
    runner = _runner(world, engine)
    await asyncio.gather(runner.start("a", _spec(engine)), runner.start("b", _spec(engine)))
    assert len(_containers(engine)) == 2
    await runner.shutdown()
    assert _containers(engine) == []


async def test_a_container_that_somebody_removes_is_replaced(world: World, engine: Engine) -> None:
    runner = _runner(world, engine)
    await runner.start("m", _spec(engine))
    (container,) = _containers(engine)
    await asyncio.to_thread(engine.remove, container)
    await until(lambda: runner.info("m").restarts == 1 and runner.state("m") == S.RUNNING)


async def test_an_absent_image_is_told_as_such(world: World, engine: Engine) -> None:
    runner = _runner(world, engine)
    with pytest.raises(ImageError) as told:
        await runner.start("m", _spec(engine, image="localhost/no-such:1"))
    assert told.value.permanent
    assert runner.state("m") == S.ERROR
    await until(lambda: world.path_of("m") == ["pulling", "error"])


async def test_a_missing_engine_is_told_with_where_it_was_looked_for(world: World) -> None:
    runner = world.runner(docker_socket=str(world.folder / "none"))
    with pytest.raises(RunnerError, match="docker does not answer") as told:
        await runner.start("m", ModelSpec(runner="docker", image="x"))
    assert told.value.code == "engine_unavailable"


async def test_kill_9_of_the_program_leaves_no_container(engine: Engine) -> None:
    """Library mode: the engine knows nothing of the program, so a guardian does."""
    (port,) = free_ports(1)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, engine.name, str(engine.socket), str(port), IMAGE],
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert owner.stdout is not None
    pid = int(await asyncio.wait_for(asyncio.to_thread(owner.stdout.readline), PATIENCE_S))
    assert living(pid)
    owner.kill()
    owner.communicate()
    await until(lambda: not living(pid))
    await until(lambda: not _containers(engine))
