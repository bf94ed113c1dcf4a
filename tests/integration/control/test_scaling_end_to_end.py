"""A deployment that follows its load over a real database: up, through a change of leader, and down without a cut."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.control.scaling import Scaling
from moorage.domain.nouns import Deployment, Replica
from moorage.wire.agent import Assignment
from tests.integration.control.control_plane import Agent, Gateway, HandClock, Plane, until

SPEC = {
    "replicas": {"min": 1, "max": 3},
    "scaling": {"up_after": "2s", "down_after": "30s"},
    "gateway": {"drain": "600s"},
}


class Busy:
    """A control plane, one machine and one gateway that goes on reporting while time passes."""

    def __init__(self, plane: Plane, agent: Agent, gateway: Gateway) -> None:
        self.plane, self.agent, self.gateway = plane, agent, gateway
        self.served: list[Assignment] = []

    async def serve(self) -> None:
        self.served.append(await self.agent.serve(not_in=tuple(a.worker for a in self.served)))

    async def seconds(self, count: int, in_flight: int, **more: Any) -> None:
        for _ in range(count):
            self.plane.clock.advance(1.0)
            await self.agent.beat()
            table = await self.plane.publisher.table(None, -1, 0.0)
            await self.gateway.report(table, in_flight=in_flight, **more)

    async def size_is(self, desired: int, code: str) -> Deployment:
        """It wants so many, and that code is the last or was one of those before."""

        async def ask() -> Deployment | None:
            row = await self.plane.deployment()
            kept = (row.scaling if row is not None else None) or {}
            return row if kept.get("desired") == desired and code in await self.plane.codes() else None

        return await until(ask, f"{desired} replicas by {code}")

    async def live(self, count: int) -> list[Replica]:
        async def ask() -> list[Replica] | None:
            found = [r for r in await self.plane.replicas() if r.routed]
            return found if len(found) == count else None

        return await until(ask, f"{count} replicas are routed")

    async def again(self, path: Path) -> None:
        """The leader dies and another process goes on."""
        await self.plane.die()
        self.plane = self.agent.plane = self.gateway.plane = await Plane.open(path, self.plane.clock)


@pytest.fixture
async def busy(tmp_path: Path) -> AsyncIterator[Busy]:
    plane = await Plane.open(tmp_path, HandClock())
    it = Busy(plane, await Agent(plane).join(), Gateway(plane))
    await plane.apply(**SPEC)
    await it.serve()
    await it.live(1)
    yield it
    await it.plane.die()


async def test_it_grows_with_its_load_and_shrinks_only_after_the_leader_has_watched_the_window(
    busy: Busy, tmp_path: Path
) -> None:
    await busy.seconds(4, 20)
    await busy.size_is(3, "scale.up")
    await busy.serve()
    await busy.serve()
    await busy.live(3)

    await busy.again(tmp_path)
    await busy.seconds(20, 0)
    await busy.size_is(3, "scale.held_stability")
    await busy.live(3)
    shown = await Scaling(busy.plane.store, _find(busy.plane), busy.plane.publisher.load).show("default", "gemma")
    assert (shown["desired"], shown["max"], shown["reason"]["code"]) == (3, 3, "scale.held_stability")
    told = [d["reason"]["code"] for d in shown["decisions"]]
    assert (told[-1], "scale.up" in told, "scale.down" in told) == ("scale.held_stability", True, False)
    assert shown["load"]["stable_s"] < 30.0, "that is why it is held"

    newest = max(await busy.plane.replicas(), key=lambda r: (r.created_at, r.uid))
    streams = {r.uid: 1 for r in await busy.plane.replicas()}
    await busy.seconds(40, 3, replicas=streams)
    await busy.size_is(1, "scale.down")
    (kept,) = await busy.live(1)
    await busy.seconds(60, 3, replicas=streams)
    assert {r.uid for r in await busy.plane.replicas()} >= {newest.uid, kept.uid}, "a stream in flight is not cut"
    await busy.seconds(3, 1, replicas={kept.uid: 1})

    async def asked() -> bool:
        work = await busy.plane.machines.work(busy.agent.uid, busy.agent.incarnation, -1, 1.0)
        return work is not None and sum(a.desired == "stop" for a in work.assignments) == 2

    await until(asked, "the two that are too many are stopped once their streams have ended")


def _find(plane: Plane) -> Any:
    async def find(namespace: str, name: str) -> Deployment:
        (row,) = await plane.rows(Deployment, namespace=namespace, name=name)
        return row

    return find
