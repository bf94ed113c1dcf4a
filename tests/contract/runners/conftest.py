"""The worlds of the runner contract, and the engines that they need."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_world import ContractWorld, make_host
from host_world import World

from tests.engines import Engine


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    it = World(tmp_path)
    yield it
    await it.close()


@pytest.fixture(params=["process", "podman", "docker"])
async def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ContractWorld]:
    """Each host in turn."""
    engine = None if request.param == "process" else request.getfixturevalue(request.param)
    async for it in _world(request.param, tmp_path, engine):
        yield it


@pytest.fixture(params=["podman", "docker"])
async def container_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ContractWorld]:
    """Each engine in turn."""
    async for it in _world(request.param, tmp_path, request.getfixturevalue(request.param)):
        yield it


async def _world(name: str, base: Path, engine: Engine | None) -> AsyncIterator[ContractWorld]:
    if engine is not None:
        engine.make_ready()
    it = ContractWorld(name, base, make_host(name, engine.socket if engine else Path("none")), engine)
    yield it
    await it.close()
