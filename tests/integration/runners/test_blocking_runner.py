"""The blocking runner is the asynchronous one: same states, same errors, watching while nobody calls."""

import inspect
import os
import signal
import sys
import threading
import time

import pytest
from runner_world import FAKE_MODEL, PATIENCE_S

from moorage.domain.errors import ModelNotStarted, ModelShutdown
from moorage.runners import ModelRunner, ModelSpec, sync
from tests.ports import free_ports

SPEC = ModelSpec([sys.executable, "-u", FAKE_MODEL, "--port", "{port}"], model="fake")


def _runner(**settings):
    return sync.ModelRunner(**{"ports": free_ports(4), "restart_delay": 0, **settings})


def wait_until(true) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.01)


def test_every_method_has_its_blocking_form() -> None:
    names = {n for n, _ in inspect.getmembers(ModelRunner, inspect.isfunction) if not n.startswith("_")} - {"refuse"}
    expected = {{"ainvoke": "invoke", "astream": "stream"}.get(name, name) for name in names}
    assert {n for n in dir(sync.ModelRunner) if not n.startswith("_")} == expected
    assert {"start", "stop", "stop_all", "restart", "shutdown", "states", "invoke", "stream", "request"} <= expected
    for name in expected - {"shutdown"}:
        twin = {"invoke": "ainvoke", "stream": "astream"}.get(name, name)
        assert inspect.signature(getattr(sync.ModelRunner, name)) == inspect.signature(getattr(ModelRunner, twin))


def test_a_whole_life_without_an_event_loop() -> None:
    with _runner() as runner:
        events = runner.events()
        assert runner.start("m", SPEC) == "running"
        assert [str(next(events).target) for _ in range(2)] == ["loading", "running"]
        assert runner.invoke("m", prompt="hi", max_tokens=1)["choices"]
        assert len(list(runner.stream("m", prompt="hi", max_tokens=2))) == 3
        assert runner.request("m", "GET", "/health").status_code == 200
        assert "listening" in runner.logs("m").lines[0]
        assert runner.stop("m") == "running"
        with pytest.raises(ModelNotStarted):
            runner.invoke("m", prompt="hi")
    with pytest.raises(ModelShutdown):
        runner.start("m", SPEC)
    runner.shutdown()


def test_it_restarts_while_nobody_calls() -> None:
    with _runner() as runner:
        runner.start("m", SPEC)
        os.kill(runner.info("m").pid, signal.SIGKILL)
        wait_until(lambda: runner.info("m").restarts == 1 and runner.state("m") == "running")


def test_a_stream_may_be_left_in_the_middle() -> None:
    with _runner() as runner:
        runner.start("m", ModelSpec([*SPEC.command, "--chunk-interval", "0.05"], model="fake"))
        stream = runner.stream("m", prompt="hi", max_tokens=1000)
        next(stream)
        stream.close()
        wait_until(lambda: runner.request("m", "GET", "/stats").json()["in_flight"] == 0)


def test_threads_may_call_at_the_same_time() -> None:
    with _runner() as runner:
        states: list[str] = []
        threads = [threading.Thread(target=lambda: states.append(runner.start("m", SPEC))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert states == ["running"] * 4
        assert runner.info("m").restarts == 0
