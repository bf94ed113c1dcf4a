"""The world of the runner contract."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from host_world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    it = World(tmp_path)
    yield it
    await it.close()
