"""Fixtures: the recording control plane, and agents that leave nothing behind."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agent_plane import FakePlane
from agent_process import AgentProcess, end_leftovers

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
