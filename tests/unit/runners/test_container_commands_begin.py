"""A signal to a command of which its engine passes output on before it tells that it runs, and as which process."""

import signal
import subprocess
from contextlib import contextmanager

import pytest

from moorage.runners.containers.commands import BEGINNING_S, ContainerCommand
from moorage.runners.port import CommandOrder

DOCKER_S_FIRST = {"Running": True, "Pid": 0, "ExitCode": None}
PODMAN_S_FIRST = {"Running": False, "Pid": 0, "ExitCode": 0}


class CountedClock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Engine:
    """Answers about one command: each once, and the last one for good."""

    name = "an engine"

    def __init__(self, *answers):
        self.answers = list(answers)

    async def exec_inspect(self, command):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def running():
    process = subprocess.Popen(["sleep", "1000"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def command_of(engine, clock):
    return ContainerCommand(engine, "container", "command", CommandOrder(("x",), stdin=False), clock)


@pytest.mark.parametrize("first", [DOCKER_S_FIRST, PODMAN_S_FIRST], ids=["docker", "podman"])
async def test_a_signal_before_the_engine_tells_the_pid_is_not_lost(first):
    with running() as process:
        told = {"Running": True, "Pid": process.pid, "ExitCode": None}
        await command_of(Engine(first, first, first, told), CountedClock()).signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


async def test_a_command_that_ended_after_it_ran_is_not_asked_about_again():
    with running() as process:
        clock = CountedClock()
        ran = {"Running": True, "Pid": process.pid, "ExitCode": None}
        ended = {"Running": False, "Pid": 0, "ExitCode": 3}
        command = command_of(Engine(ran, ended), clock)
        await command.signal(0)
        await command.signal(signal.SIGTERM)
        assert (clock.at, process.poll()) == (0.0, None)
        assert (await command.exit()).code == 3


async def test_a_command_whose_exit_is_told_gets_no_signals_and_nobody_waits():
    clock = CountedClock()
    command = command_of(Engine({"Running": False, "Pid": 4_000_000, "ExitCode": 3}), clock)
    assert (await command.exit()).code == 3
    await command.signal(signal.SIGTERM)
    assert clock.at == 0.0


@pytest.mark.parametrize("first", [DOCKER_S_FIRST, PODMAN_S_FIRST], ids=["docker", "podman"])
async def test_an_engine_that_never_tells_is_not_asked_for_ever(first):
    clock = CountedClock()
    await command_of(Engine(first), clock).signal(signal.SIGTERM)
    assert BEGINNING_S <= clock.at < BEGINNING_S + 2
