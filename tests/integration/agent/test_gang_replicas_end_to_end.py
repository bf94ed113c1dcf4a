"""A model that spans two machines: real control plane, two agents, the example of a server that needs both."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from whole_plane import TOKENS, WholePlane, alive, kill_9

from moorage.domain.nouns import Replica, Worker
from moorage.domain.states import ReplicaStatus

SERVER = Path(__file__).resolve().parents[3] / "examples" / "spanning.py"


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WholePlane]:
    it = WholePlane(tmp_path)
    await it.open(monkeypatch)
    yield it
    await it.close()


async def ask(plane: WholePlane, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    async with httpx.AsyncClient(
        base_url=f"{plane.url}/api/v1", headers=headers, trust_env=False, verify=False
    ) as client:
        answer = await client.request(method, f"/namespaces/default/deployments/big{path}", json=body, timeout=60.0)
    assert answer.status_code < 300, answer.text
    return answer.json()


async def apply(plane: WholePlane) -> None:
    command = [sys.executable, str(SERVER), "--port", "{port}", "--host", "{host}", "--model", "m"]
    spec = {
        "kind": "Deployment",
        "name": "big",
        "model": {"id": "m"},
        "runtime": {"command": command, "stop": {"grace": 5.0}},
        "replicas": {"workers": 2},
        "placement": {"spread": "machine"},
    }
    await ask(plane, "PUT", "", spec)


async def serving(plane: WholePlane, attempt: int) -> Replica:
    async def routed() -> Replica | None:
        return next((r for r in await plane.store.find(Replica) if r.routed and r.attempt == attempt), None)

    return await plane.until(routed, f"attempt {attempt} serves")


async def members(plane: WholePlane, replica: Replica) -> list[Worker]:
    return sorted(await plane.store.find(Worker, run=replica.run), key=lambda w: w.rank)


def pids(workers: list[Worker]) -> list[int]:
    return [int(dict(w.process or {})["pid"]) for w in workers]


async def test_two_machines_serve_one_replica_and_a_killed_follower_has_it_replaced_as_a_whole(
    plane: WholePlane,
) -> None:
    await asyncio.gather(plane.agent("left"), plane.agent("right"))
    await apply(plane)
    first = await serving(plane, 1)
    leader, follower = await members(plane, first)
    assert {leader.machine_name, follower.machine_name} == {"left", "right"}
    assert (first.address, first.machine) == (leader.address, leader.machine)
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        met = (await client.get(f"http://{first.address}/members", timeout=60.0)).json()["met"]
    assert met == ["rank 1 of 2"]
    shown = (await ask(plane, "GET", "/replicas"))["items"]
    assert sorted(shown[0]["machines"]) == ["left", "right"]

    kill_9(pids([follower])[0])
    second = await serving(plane, 2)
    assert (second.ordinal, await codes(plane, first)) == (0, ("failed", "container_crashed"))
    old, new = await members(plane, first), await members(plane, second)
    assert not any(alive(pid) for pid in pids(old)), "the leader was stopped with its gang"
    assert dict(old[0].stop or {})["cause"] == "gang_restart"
    assert all(alive(pid) for pid in pids(new))

    await ask(plane, "POST", "/stop")

    def gone() -> bool:
        return not any(alive(pid) for pid in pids(new))

    await plane.until(gone, "every member is gone")


async def codes(plane: WholePlane, replica: Replica) -> tuple[str, str | None]:
    row = await plane.store.get(Replica, replica.uid)
    assert row is not None
    assert row.status is ReplicaStatus.FAILED
    return str(row.status), row.fail_reason
