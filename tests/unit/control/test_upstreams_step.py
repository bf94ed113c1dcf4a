"""An adopted server is looked at at its own pace, whatever traffic it has; its end waits for the last request."""

from typing import Any

import httpx

from moorage.control.upstreams import LOOK_S, UpstreamsStep
from moorage.decide.serving.snapshot import Demand
from moorage.domain.nouns import Deployment
from moorage.domain.states import DeploymentStatus
from moorage.wire.claim import ClaimAnswer

UPSTREAM = {"url": "http://box:8000", "host": "box", "port": 8000, "resource": "pid:7", "machine": "mch-1"}


class Clock:
    def now(self) -> float:
        return 1000.0


class Rows:
    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.changes: list[Any] = []

    async def get(self, kind: type, uid: str) -> Deployment:
        return self.deployment

    async def commit(self, change: Any) -> None:
        self.changes.append(change)


class Traffic:
    demand_now = Demand(confirmed=True)

    def demand(self, deployment: Deployment) -> Demand:
        return self.demand_now


class Claims:
    asked = 0

    async def ask(self, machine: str, question: Any, limit_s: float) -> ClaimAnswer:
        self.asked += 1
        return ClaimAnswer(gone=True)


def made(mode: str, **change: Any) -> tuple[UpstreamsStep, Rows, Traffic, Claims]:
    deployment = Deployment(uid="dep-1", name="old", ownership=mode, upstream={**UPSTREAM, "mode": mode}, **change)
    rows, traffic, claims = Rows(deployment), Traffic(), Claims()
    answers = httpx.MockTransport(lambda request: httpx.Response(200, json={"data": [{"id": "m"}]}))
    http = httpx.AsyncClient(transport=answers)
    step: Any = UpstreamsStep
    return step(rows, Clock(), http, traffic=traffic, claims=claims, new_id=lambda: "q"), rows, traffic, claims


async def test_one_that_serves_is_looked_at_again_after_the_pace_and_news_of_its_traffic_concern_nothing() -> None:
    step, rows, _, _ = made("traffic")
    assert await step("dep-1") == 1000.0 + LOOK_S
    assert len(rows.changes) == 1
    assert step.draining == set()


async def test_an_end_waits_for_the_last_request_and_is_asked_for_then() -> None:
    step, rows, traffic, claims = made("lifecycle", status=DeploymentStatus.STOPPED, deleting=True)
    traffic.demand_now = Demand(confirmed=True, by_replica={"dep-1.upstream": 1})
    assert await step("dep-1") is None
    assert (claims.asked, step.draining) == (0, {"dep-1"})
    traffic.demand_now = Demand(confirmed=True)
    assert await step("dep-1") is None
    assert (claims.asked, step.draining) == (1, set())
    assert rows.changes[0].writes[0].fields["upstream"]["gone"] is True
