"""What `moor why` and `moor status` read, through the whole control plane, of a model that does not answer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.control.explain import Explanation
from moorage.control.reading import Reader
from moorage.domain.nouns import Deployment
from moorage.domain.reasons import reason
from tests.integration.control.control_plane import STEPS, Agent, HandClock, Plane, until


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = await Plane.open(tmp_path, HandClock())
    yield plane
    await plane.die()


async def deployment_says(plane: Plane, code: str) -> Deployment:
    async def ask() -> Deployment | None:
        row = await plane.deployment()
        return row if row is not None and row.reason is not None and row.reason.code == code else None

    return await until(ask, f"the deployment says {code}")


async def test_a_model_whose_probe_fails_is_explained_in_why_and_status_until_it_answers_again(plane: Plane) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.serve()
    await plane.table("serve")
    await deployment_says(plane, "deploy.ready")
    why = reason("live.failing", n=3, error="status 500")
    await agent.report(told, ready=False, ready_why=why.to_wire())
    await deployment_says(plane, "deploy.unready")
    answer = await Explanation(plane.store, plane.clock).why("default", "gemma")
    assert answer["phase"] == "DEPLOYING"
    assert "3 probes in a row failed: status 500" in answer["reason"]["message"]
    assert answer["unready"]["reason"]["code"] == "replica.withdrawn"
    assert answer["unready"]["reason"]["advice"]
    (shown,) = await Reader(plane.store, plane.clock, "http://gateway").replicas("default", "gemma")
    assert (shown["status"], shown["routed"]) == ("running", False)
    assert "3 probes in a row failed" in shown["reason"]["message"]
    await agent.report(told, ready=True, address="127.0.0.1:18000")
    await deployment_says(plane, "deploy.ready")
    answer = await Explanation(plane.store, plane.clock).why("default", "gemma")
    assert (answer["phase"], answer["unready"]) == ("ACTIVE", None)
    (shown,) = await Reader(plane.store, plane.clock, "http://gateway").replicas("default", "gemma")
    assert shown["reason"]["code"] == "replica.ready"


async def test_a_model_that_never_gets_ready_is_explained_with_what_its_server_answers(plane: Plane) -> None:
    agent = await Agent(plane).join()
    await plane.apply()
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, address="127.0.0.1:18000")
    why = reason("ready.waiting", path="/health", status=503)
    await agent.report(told, ready=False, ready_why=why.to_wire())
    row = await deployment_says(plane, "deploy.unready")
    assert row.reason is not None
    assert row.reason.message == f"0 of 1 replicas ready: {why.message}"
    answer = await Explanation(plane.store, plane.clock).why("default", "gemma")
    assert (answer["phase"], answer["unready"]["reason"]["message"]) == (
        "LOADING_MODEL",
        f"Not ready yet: {why.message}",
    )


async def test_a_model_that_fits_nowhere_is_explained_by_its_queue_alone(plane: Plane) -> None:
    await Agent(plane).join(cpu_milli=100)
    await plane.apply(resources={"cpu": "1"})
    await deployment_says(plane, "deploy.unready")
    answer = await Explanation(plane.store, plane.clock).why("default", "gemma")
    assert answer["queue"]["position"] == 1
    assert answer["unready"] is None
    assert answer["machines"]


async def test_a_wait_is_explained_from_the_kept_book_as_from_one_built_anew(plane: Plane) -> None:
    await Agent(plane).join(cpu_milli=100)
    await plane.apply(resources={"cpu": "1"})
    await deployment_says(plane, "deploy.unready")
    assert await plane.scheduling.keeper.kept() is not None
    kept = await Explanation(plane.store, plane.clock, plane.scheduling.keeper).why("default", "gemma")
    assert kept["queue"]["position"] == 1
    assert kept == await Explanation(plane.store, plane.clock).why("default", "gemma")
