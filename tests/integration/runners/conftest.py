"""The world of the runner library's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from runner_world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    it = World(tmp_path)
    yield it
    await it.close()
