"""Fixtures: the recording control plane, and agents that leave nothing behind."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agent_plane import FakePlane
from agent_process import AgentProcess

from moorage.runners.identity import alive, identity_from, read_fields
from tests.ports import free_range


@pytest.fixture
async def plane() -> AsyncIterator[FakePlane]:
    it = FakePlane()
    await it.up()
    yield it
    await it.away()


@pytest.fixture
async def make_agent(plane: FakePlane, tmp_path: Path) -> AsyncIterator[Callable[..., AgentProcess]]:
    made: list[AgentProcess] = []

    def make(**config: Any) -> AgentProcess:
        config.setdefault("ports", free_range(8))
        made.append(AgentProcess(tmp_path / f"agent{len(made)}", plane.url, **config))
        return made[-1]

    yield make
    for agent in made:
        if agent.running:
            await agent.kill()
        end_leftovers(agent.home)


def end_leftovers(home: Path) -> None:
    """Kill what a test left, by the identities that the shims wrote down."""
    for path in home.glob("workers/*/*/identity"):
        known = identity_from(read_fields(path.read_text()))
        for pid, ticks in ((known.pid, known.start_ticks), (known.shim_pid, known.shim_ticks)):
            if alive(pid, ticks):
                os.kill(pid, signal.SIGTERM if pid == known.shim_pid else signal.SIGKILL)
