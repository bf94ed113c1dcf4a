"""A rollout from apply to its end in a whole control plane, with real model servers: the guard sends what it needs."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.clock import SystemClock
from moorage.domain.nouns import Revision
from tests.integration.control.compared_world import Model, Server
from tests.integration.control.control_plane import STEPS, Agent, Plane, until

GUARD = {"ttft_percent": 1000, "latency_percent": 1000, "throughput_percent": 100}
"""For tests that are about something else: a busy machine may slow either server down."""


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with httpx.AsyncClient(
        trust_env=False, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
    ) as http:
        opened = await Plane.open(tmp_path, SystemClock(), http=http)
        yield opened
        await opened.die()


async def start(agent: Agent, server: Server, *, not_in: tuple[str, ...] = ()) -> str:
    """The next replica runs, and is the given server."""
    told = await agent.assigned("run", not_in=not_in)
    await agent.report(told, *STEPS, process={"pid": 1})
    await agent.report(told, ready=True, address=server.address)
    return told.worker


async def rolled_out(plane: Plane, old: Server, new: Server, guard: dict[str, Any]) -> Revision:
    """Serve `old`, apply another revision, start it as `new`; the second revision once it is over or active."""
    agent = await Agent(plane).join()
    rollout = {"guard": guard}
    await plane.apply(model={"id": "gemma"}, rollout=rollout)
    first = await start(agent, old)

    async def serves() -> bool:
        row = await plane.deployment()
        return row is not None and row.active_revision is not None

    await until(serves, "the first revision is active")
    answer = await plane.apply(
        model={"id": "gemma"}, rollout=rollout, runtime={"command": ["serve", "2", "--port", "{port}"]}
    )
    await start(agent, new, not_in=(first,))

    async def ended() -> Revision | None:
        row = await plane.store.get(Revision, answer["revision"])
        return row if row is not None and row.state in ("active", "rejected", "failed", "cancelled") else None

    return await until(ended, "the rollout is over")


async def test_a_good_candidate_is_promoted_on_requests_that_no_client_sent(plane: Plane) -> None:
    async with Server(Model()) as old, Server(Model()) as new:
        row = await rolled_out(plane, old, new, GUARD)
    assert row.state == "active"
    assert [d["verdict"] for d in row.decisions][-1] == "ACCEPT"
    assert [r["code"] for r in row.decisions[-1]["reasons"]] == ["within_policy"]
    assert len(new.model.bodies) >= 20
    assert row.decisions[-1]["evidence"]["candidate"]["requests"] >= 20


async def test_a_candidate_that_fails_three_of_ten_is_rejected_and_the_active_one_stays(plane: Plane) -> None:
    async with Server(Model()) as old, Server(Model(fails=(1, 4, 7))) as new:
        row = await rolled_out(plane, old, new, GUARD)
    assert row.state == "rejected"
    assert "error_rate_regression" in [r["code"] for r in row.decisions[-1]["reasons"]]
    deployment = await plane.deployment()
    assert deployment is not None
    assert deployment.active_revision not in (None, row.uid)


async def test_a_slow_candidate_is_rejected(plane: Plane) -> None:
    guard = {"minimum_requests": 8}
    async with Server(Model()) as old, Server(Model(delay_s=0.5)) as new:
        row = await rolled_out(plane, old, new, guard)
    assert row.state == "rejected"
    assert "latency_regression" in [r["code"] for r in row.decisions[-1]["reasons"]]
