"""What all tests share: how they are spread over a run's workers, container engines, examples drawn, accelerators.

A test runs on any worker, beside any other. Those that use one expensive thing together (a container engine, an
installation) are a group, and a group runs one by one on one worker.
"""

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from moorage.gateway import accelerators
from tests.engines import Engine, running

# Some machines set it; here it would compile every module again for each of thousands of processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# In which form the gateway's hot path is tested in this process; before anything imports it. A test's own gateways are
# processes with settings of their own.
COMBINATIONS = {
    "none": (),
    "native": (accelerators.NATIVE,),
    "compiled": (accelerators.COMPILED,),
    "both": accelerators.PARTS,
}
COMBINATION = os.environ.get("MOORAGE_TEST_ACCELERATORS", "auto")
if COMBINATION not in ("auto", *COMBINATIONS):
    pytest.exit(f"MOORAGE_TEST_ACCELERATORS is {COMBINATION!r}: auto, {', '.join(COMBINATIONS)}", returncode=4)
ACCELERATED = accelerators.install(
    "auto" if COMBINATION == "auto" else "require" if COMBINATIONS[COMBINATION] else "off",
    wanted=COMBINATIONS.get(COMBINATION, accelerators.PARTS),
)

# A run in the background of a script is started with SIGINT ignored, and so would be every process of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test makes our code log is one line: the default draws a traceback with all its variables, for many seconds.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()])

# A deadline would be a wall-clock assertion, and a new example in each run a verdict that changes by itself.
# `make property-long` draws others, and many more.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile("same")

ENGINES = ("podman", "docker")
TOGETHER = (
    "tests/acceptance/",  # an installation for each module
    "tests/integration/runners/test_runner_documentation.py",  # the ports that the library has by default
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end, so the collector need not walk them, neither while they come nor after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which form of the gateway's hot path was tested: the run is quiet, so its header is not seen."""
    fault = f" ({ACCELERATED.fault})" if ACCELERATED.fault else ""
    terminalreporter.write_line(f"accelerators: {' and '.join(ACCELERATED.parts) or 'none'}{fault}")


class ByGroup(LoadScopeScheduling):
    """Spreads tests over the workers, each by itself or with its group."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """The name of what runs one by one on one worker: tests of one engine in one room, some modules, or one test."""
    path, _, test = nodeid.partition("::")
    of_engine = re.search(rf"\[({'|'.join(ENGINES)})\b", test)
    if of_engine:
        return f"{path.split('/')[1]} on {of_engine[1]}"
    return path if path.startswith(TOGETHER) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup | None:
    """For `--dist loadgroup`; xdist's own marks have no effect with this pytest (3.8 writes names that 9.2 ignores)."""
    return ByGroup(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def podman() -> Iterator[Engine]:
    with running("podman") as it:
        yield it


@pytest.fixture(scope="session")
def docker() -> Iterator[Engine]:
    with running("docker") as it:
        yield it


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn: answering, and without a container of an earlier test."""
    it: Engine = request.getfixturevalue(request.param)
    it.make_ready()
    return it
