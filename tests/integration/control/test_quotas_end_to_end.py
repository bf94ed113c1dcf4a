"""Quotas and pools on a control plane with its loops and an agent: what waits says why, and starts when it may."""

from pathlib import Path
from typing import Any

import pytest

from moorage.control.explain import Explanation
from moorage.control.namespaces import Namespaces
from moorage.domain.errors import QuotaExceeded
from moorage.domain.nouns import Run, Worker
from moorage.wire.namespace import Limits, NamespaceBody
from moorage.wire.spec import document, normalise
from tests.integration.control.control_plane import Agent, HandClock, Plane, until

NS = "research"


def spec(name: str, cpu: float = 1, **parts: Any) -> dict[str, Any]:
    group = {"runtime": {"command": ["x"]}, "resources": {"cpu": cpu}}
    return normalise(document({"kind": "Run", "name": name, "namespace": NS, "groups": [group], **parts}))


async def submit(plane: Plane, name: str, **parts: Any) -> Any:
    return await plane.commands.runs.apply(NS, name, spec(name, **parts), actor="person:p", key=None, create_only=False)


async def worker_of(plane: Plane, name: str) -> Worker | None:
    found = [w for w in await plane.rows(Worker) if w.name.startswith(name)]
    return found[0] if found else None


async def placed(plane: Plane, name: str) -> bool:
    worker = await worker_of(plane, name)
    return worker is not None and worker.machine is not None


async def says(plane: Plane, name: str, code: str) -> bool:
    worker = await worker_of(plane, name)
    return worker is not None and worker.reason is not None and worker.reason.code == code


async def test_work_above_the_quota_waits_says_so_and_starts_when_the_quota_is_raised(tmp_path: Path) -> None:
    plane = await Plane.open(tmp_path, HandClock())
    await Agent(plane, "m1").join()
    namespaces = Namespaces(plane.store, plane.clock)
    await namespaces.set_quota(NS, Limits(cpu=1.5), actor="person:p", key=None)
    await submit(plane, "first")
    await until(lambda: placed(plane, "first"), "the first is placed")
    await submit(plane, "second")
    await until(lambda: says(plane, "second", "quota.waiting"), "the second waits for the quota")
    (run,) = [r for r in await plane.rows(Run) if r.name == "second"]
    notes = [row.reason.code for row in await plane.store.history(uid=run.uid)]
    assert notes.count("quota.reached") == 1
    why = await Explanation(plane.store, plane.clock).why(NS, "second")
    assert why["reason"]["params"] == {"resource": "cpu", "used": 1, "asked": 1, "limit": 1.5, "gang": False}
    changes = {change["change"]: change["verified"] for change in why["changes"]}
    assert changes["raise the quota of cpu to 2"] is True
    assert (await namespaces.quota(NS))["used"]["cpu"] == 1
    await namespaces.set_quota(NS, Limits(cpu=2), actor="person:p", key=None)
    await until(lambda: placed(plane, "second"), "a raised quota wakes the scheduler")
    assert (await namespaces.quota(NS))["used"]["cpu"] == 2
    await plane.die()


async def test_a_pool_that_gets_its_machine_wakes_the_work_that_waits_for_it(tmp_path: Path) -> None:
    plane = await Plane.open(tmp_path, HandClock())
    await Agent(plane, "m1").join()
    namespaces = Namespaces(plane.store, plane.clock)
    await namespaces.put(NS, NamespaceBody(machines={"pool": "r"}), actor="person:p", key=None)
    await submit(plane, "job")
    await until(lambda: says(plane, "job", "place.no_machines"), "no machine of its pool is there")
    await namespaces.put(NS, NamespaceBody(), actor="person:p", key=None)
    await until(lambda: placed(plane, "job"), "it may use every machine again")
    await plane.die()


async def test_a_run_too_many_is_refused_and_a_schedule_lets_its_time_pass(tmp_path: Path) -> None:
    clock = HandClock()
    plane = await Plane.open(tmp_path, clock)
    namespaces = Namespaces(plane.store, clock)
    await namespaces.set_quota(NS, Limits(runs=2), actor="person:p", key=None)
    uid = (await submit(plane, "nightly", schedule={"cron": "0 * * * *"}))["run"]["id"]
    await submit(plane, "other")
    with pytest.raises(QuotaExceeded, match="may have 2 runs"):
        await submit(plane, "third")
    row = await plane.store.get(Run, uid)
    assert row is not None
    clock.advance(3700.0)

    async def skipped() -> bool:
        return "run.schedule_skipped" in [r.reason.code for r in await plane.store.history(uid=uid)]

    await until(skipped, "the schedule says that its time passed")
    assert {r.name for r in await plane.rows(Run)} == {"nightly", "other"}
    await plane.die()
