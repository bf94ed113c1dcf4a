import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop
from gateway_rig import ModelServer, Rig, running_gateway


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path) as rig:
        yield rig


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    server = await ModelServer().start()
    yield server
    await server.stop()


@pytest.fixture
async def second_server() -> AsyncIterator[ModelServer]:
    server = await ModelServer().start()
    yield server
    await server.stop()
