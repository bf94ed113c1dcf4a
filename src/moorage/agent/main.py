"""`python -m moorage.agent.main --config FILE`: the agent as a program.

SIGTERM and SIGINT end it; whether the workers end with it is `stop_workers_on_exit` of the configuration. Exit codes:
0 an orderly end, 2 a bad configuration, 1 anything else that it cannot go on with.
"""

import argparse
import asyncio
import faulthandler
import fcntl
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom

import structlog

from moorage.agent.agent import Agent, check_single
from moorage.agent.config import AgentConfig, load_config
from moorage.clock import SystemClock
from moorage.devices.declared import DeclaredDevices
from moorage.devices.finding import this_machines
from moorage.devices.port import Device, Devices
from moorage.domain.errors import InvalidSpec, MoorageError
from moorage.wire.alive import Answering


def main(argv: Sequence[str] | None = None) -> int:
    """Read the configuration, run the agent, answer the exit code."""
    parser = argparse.ArgumentParser(prog="moorage.agent.main")
    parser.add_argument("--config", type=Path, required=True, help="JSON file with the agent's configuration")
    options = parser.parse_args(argv)
    try:
        config = load_config(options.config, os.environ)
        return asyncio.run(_run(config, options.config))
    except MoorageError as cause:
        print(f"agent: {cause.message}" + (f"\n  {cause.remedy}" if cause.remedy else ""), file=sys.stderr)
        return 2 if isinstance(cause, InvalidSpec) else 1


def logger(level: str) -> structlog.stdlib.BoundLogger:
    """The agent's own log: one JSON object a line on standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    made: structlog.stdlib.BoundLogger = structlog.get_logger("agent")
    return made


async def _run(config: AgentConfig, path: Path) -> int:
    config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lock = os.open(config.home / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        check_single(not _locked(lock), str(config.home))
        log = logger(config.log)
        try:
            answering = Answering(path)
        except OSError as cause:
            log.warning("nobody can ask whether this process hangs", error=cause.strerror or str(cause))
        else:
            loop.add_reader(answering.fileno(), answering.hear)
        agent = Agent(config, SystemClock(), SystemRandom(), log, version("moorage"), devices=_devices(config, log))
        await agent.run(stop)
    finally:
        os.close(lock)
    return 0


def _devices(config: AgentConfig, log: structlog.stdlib.BoundLogger) -> Devices:
    """What was declared; else what a driver shows."""
    if config.gpus:
        return DeclaredDevices(Device(g.index, g.uuid, g.vendor, g.model, g.model, g.memory_bytes) for g in config.gpus)
    return this_machines(lambda why: log.info("no GPUs here", why=why))


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    faulthandler.enable()  # ended since it hung, it writes the stacks of its threads
    sys.exit(main())
