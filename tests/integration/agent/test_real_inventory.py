"""`/inventory` and `/orphans` over a whole control plane and real agents: what is there, and what nothing means."""

import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from whole_plane import TOKENS, WholePlane

FORGED = "c" * 32


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WholePlane]:
    it = WholePlane(tmp_path)
    await it.open(monkeypatch)
    yield it
    await it.close()


async def asked(plane: WholePlane, what: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=90.0, headers=headers) as http:
        answer = await http.get(f"{plane.url}/api/v1/{what}")
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


async def told(plane: WholePlane, what: str) -> dict[str, Any]:
    """The answer once every machine gave its own in time."""

    async def ask() -> dict[str, Any] | None:
        found = await asked(plane, what)
        return found if found["inventory_complete"] else None

    return await plane.until(ask, "a complete inventory")


def forged(home: Path, worker: str) -> dict[str, str]:
    folder = home / "workers" / worker / f"1-{FORGED[:8]}"
    return {
        "MOORAGE_COOKIE": FORGED,
        "MOORAGE_WORKER": worker,
        "MOORAGE_EPOCH": "1",
        "MOORAGE_HEARTBEAT_FILE": f"{folder}/heartbeat",
    }


async def test_a_worker_that_is_meant_is_found_with_its_identity_and_nothing_is_an_orphan(plane: WholePlane) -> None:
    await plane.agent("box")
    await plane.submit()
    worker = await plane.worker_is("Running")
    pid = await plane.pid_of(1)
    found = await told(plane, "inventory")
    (item,) = found["items"]
    assert (item["drift"], item["resource_id"], item["machine"]) == ("adopt", f"pid:{pid}", "box")
    assert item["identity"] == f"{worker.run}/worker/0/1"
    assert (await told(plane, "orphans"))["items"] == []


async def test_what_nothing_means_is_an_orphan_and_is_left_alone(plane: WholePlane) -> None:
    agent = await plane.agent("box")
    stray = subprocess.Popen(["/bin/sleep", "1000"], env=forged(agent.home, "wrk-unknown"))
    try:
        (item,) = (await told(plane, "orphans"))["items"]
        assert (item["drift"], item["resource_id"]) == ("orphan", f"pid:{stray.pid}")
        assert stray.poll() is None
    finally:
        stray.kill()
        stray.wait()


async def test_a_late_arrival_of_a_worker_that_ended_is_told_by_its_tombstone(plane: WholePlane) -> None:
    agent = await plane.agent("box")
    await plane.submit()
    worker = await plane.worker_is("Running")
    plane.tell_to_exit(1)
    await plane.run_is("Completed")
    stray = subprocess.Popen(["/bin/sleep", "1000"], env=forged(agent.home, worker.uid))
    try:
        (item,) = (await told(plane, "orphans"))["items"]
        assert (item["drift"], item["resource_id"]) == ("late", f"pid:{stray.pid}")
    finally:
        stray.kill()
        stray.wait()


async def test_another_installations_processes_are_nobody_here(plane: WholePlane, tmp_path: Path) -> None:
    await plane.agent("box")
    stray = subprocess.Popen(["/bin/sleep", "1000"], env=forged(tmp_path / "elsewhere", "wrk-theirs"))
    try:
        assert (await told(plane, "inventory"))["items"] == []
    finally:
        stray.kill()
        stray.wait()


async def test_a_machine_that_does_not_answer_makes_the_inventory_incomplete_and_is_named(plane: WholePlane) -> None:
    agent = await plane.agent("box")
    await plane.submit()
    await plane.worker_is("Running")
    agent.send(signal.SIGSTOP)
    plane.clock.ahead_s += 60.0
    found = await asked(plane, "inventory")
    assert not found["inventory_complete"]
    assert [part["machine"] for part in found["incomplete"]] == ["box"]
    assert {item["drift"] for item in found["items"]} <= {"read_only"}
    assert Path(f"/proc/{await plane.pid_of(1)}").exists()
