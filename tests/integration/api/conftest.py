from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from api_world import (
    TOKENS,
    CountingStore,
    FakeCommands,
    FakeExplain,
    FakeGateways,
    FakeMachines,
    HandClock,
    Rows,
    World,
)

from moorage.api.app import create_app
from moorage.api.auth import Auth
from moorage.api.deps import ApiDeps, ApiSettings
from moorage.clock import SystemClock
from moorage.control.authority import Authority
from moorage.control.caches import CacheAsking
from moorage.control.claims import ClaimAsking
from moorage.control.credentials import Credentials
from moorage.control.driverelay import DriveRelay
from moorage.control.drives import Drives
from moorage.control.execrelay import ExecRelay
from moorage.control.inventory import StockAsking
from moorage.control.logrelay import LogRelay
from moorage.control.provisions import Provisions
from moorage.control.sealing import Sealer
from moorage.control.vault import Vault
from moorage.control.work import WorkBoard
from moorage.store.opening import open_store
from tests.memory_rows import CountedIds


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = await open_store(f"sqlite:///{tmp_path}/m.db", SystemClock())
    counting = CountingStore(store)
    clock = HandClock()
    credentials = Credentials(counting, clock)
    numbers = iter(range(1, 10_000))
    commands, machines, gateways = FakeCommands(), FakeMachines(), FakeGateways()
    answers: dict[str, httpx.Response] = {}
    asked: list[httpx.Request] = []

    def gateway(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.host not in answers:
            raise httpx.ConnectError("refused", request=request)
        return answers[request.url.host]

    sealer = Sealer(tmp_path / "secrets.key")
    vault, authority = Vault(counting, clock, sealer), Authority(counting, clock, sealer)
    board = WorkBoard(counting, clock, LogRelay(clock, lambda: "q-0"))
    relay = LogRelay(clock, lambda: f"q-{next(numbers)}")
    deps = ApiDeps(
        store=counting,
        usage=store,
        clock=clock,
        commands=commands,
        machines=machines,
        gateways=gateways,
        explain=FakeExplain(),
        auth=Auth(TOKENS, credentials),
        credentials=credentials,
        logs=relay,
        execs=ExecRelay(counting, clock, lambda: f"x-{next(numbers)}"),
        vault=vault,
        provisions=Provisions(counting, vault, authority, board),
        authority=authority,
        drives=Drives(counting, clock, lambda: None),
        copies=DriveRelay(clock, lambda: f"d-{next(numbers)}"),
        stock=StockAsking(clock),
        claims=ClaimAsking(clock),
        caches=CacheAsking(clock),
        ids=CountedIds(),
        settings=ApiSettings(gateway_url="http://127.0.0.1:7421", gateway_token=TOKENS.gateway),
        http=httpx.AsyncClient(transport=httpx.MockTransport(gateway)),
        stats=lambda: {"store_commits": 41.0},
    )
    app = create_app(deps)
    yield World(app, deps, clock, counting, Rows(store), commands, machines, gateways, answers, asked)
    await deps.http.aclose()
    await store.close()
