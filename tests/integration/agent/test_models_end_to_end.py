"""A model from a hub, from the spec to the server that is given it: real control plane, real agent, real hub client."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_work import FAKE_MODEL
from whole_plane import TOKENS, WholePlane

from moorage.domain.nouns import Replica, Revision, Worker
from tests.hub_mirror import PIECE, HubMirror

REPO = "org/tiny"
WEIGHTS = bytes(range(256)) * 16384  # 4 MiB
SOURCE = f"hf://{REPO}@main/model.gguf"


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubMirror]:
    it = HubMirror()
    monkeypatch.setenv("HF_ENDPOINT", it.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield it
    it.close()


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: HubMirror) -> AsyncIterator[WholePlane]:
    it = WholePlane(tmp_path)
    await it.open(monkeypatch)
    yield it
    await it.close()


async def ask(plane: WholePlane, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    async with httpx.AsyncClient(
        base_url=f"{plane.url}/api/v1", headers=headers, trust_env=False, verify=False
    ) as client:
        return await client.request(method, path, json=body, timeout=60.0)


async def apply(plane: WholePlane) -> dict[str, Any]:
    command = [sys.executable, FAKE_MODEL, "--port", "{port}", "--host", "{host}", "--model", "m"]
    runtime = {"command": command, "env": {"MOORAGE_TEST_MODEL": "{model}"}, "stop": {"grace": 5.0}}
    spec = {"kind": "Deployment", "name": "tiny", "model": {"id": "m", "source": SOURCE}, "runtime": runtime}
    answer = await ask(plane, "PUT", "/namespaces/default/deployments/tiny", spec)
    assert answer.status_code < 300, answer.text
    return answer.json()


async def models(plane: WholePlane) -> list[dict[str, Any]]:
    return (await ask(plane, "GET", "/machines/box/cache")).json()["models"]


async def test_a_model_is_pinned_fetched_across_a_crash_of_the_agent_given_to_its_server_and_kept_while_used(
    plane: WholePlane, mirror: HubMirror
) -> None:
    commit = mirror.push(REPO, {"model.gguf": WEIGHTS, "config.json": b"{}"})
    mirror.hold_after = 3 * PIECE
    agent = await plane.agent("box")
    await apply(plane)
    (revision,) = await plane.store.find(Revision)
    pinned = f"hf://{REPO}@{commit}/model.gguf"
    assert (revision.spec["model"]["source"], revision.pins) == (SOURCE, {"model.source": pinned})
    assert (await apply(plane))["changed"] is False

    async def far() -> Worker | None:
        """Its reason says how much of it is here; the deployment shows that it is being fetched."""
        for worker in await plane.store.find(Worker, state="Pulling"):
            params = dict(worker.reason.params) if worker.reason is not None else {}
            if params.get("done") and params.get("total") == len(WEIGHTS):
                return worker
        return None

    seen = await plane.until(far, "its fetch is visible")
    assert seen.reason is not None
    assert seen.reason.message.startswith(f"Fetching {pinned}: ")
    assert " of 4.0 MiB" in seen.reason.message
    why = (await ask(plane, "GET", "/namespaces/default/deployments/tiny/why")).text
    assert "of 4.0 MiB" in why

    await agent.kill()
    mirror.hold_after = None
    mirror.go_on.set()
    await plane.agent("box")

    async def served() -> Replica | None:
        rows = await plane.store.find(Replica)
        return next((r for r in rows if r.status == "running"), None)

    replica = await plane.until(served, "its server is ready")
    ranges = [span for span in mirror.fetched("model.gguf") if span]
    assert ranges, "the second agent fetched what was missing only"
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        stats = (await client.get(f"http://{replica.address}/stats", timeout=30.0)).json()
    given = Path(stats["env"]["MOORAGE_TEST_MODEL"])
    assert given.is_file()
    assert given.read_bytes() == WEIGHTS

    (kept,) = await models(plane)
    assert (kept["source"], kept["state"], kept["used_by"]) == (pinned, "cached", [f"{replica.name}-0"])
    refused = await ask(plane, "POST", "/machines/box/cache", {"action": "evict", "source": pinned})
    assert (refused.status_code, refused.json()["code"]) == (409, "model_in_use")
    assert given.exists()


async def test_a_model_is_fetched_ahead_pinned_and_evicted_by_people(plane: WholePlane, mirror: HubMirror) -> None:
    mirror.push(REPO, {"model.gguf": WEIGHTS})
    await plane.agent("box")
    begun = await ask(plane, "POST", "/machines/box/cache", {"action": "prefetch", "source": SOURCE, "pin": True})
    assert [m["state"] for m in begun.json()["models"]] == ["fetching"]

    async def cached() -> dict[str, Any] | None:
        return next((m for m in await models(plane) if m["state"] == "cached" and m["names"]), None)

    kept = await plane.until(cached, "it is there")
    assert (kept["names"], kept["pinned"]) == ([SOURCE], True)
    refused = await ask(plane, "POST", "/machines/box/cache", {"action": "evict", "source": SOURCE})
    assert (refused.status_code, refused.json()["code"]) == (409, "model_pinned")
    assert (await ask(plane, "POST", "/machines/box/cache", {"action": "unpin", "source": SOURCE})).status_code == 200
    gone = await ask(plane, "POST", "/machines/box/cache", {"action": "evict", "source": kept["source"]})
    assert gone.json()["models"] == []
    absent = await ask(plane, "POST", "/machines/box/cache", {"action": "pin", "source": SOURCE})
    assert (absent.status_code, absent.json()["code"]) == (404, "model_absent")


async def test_a_model_that_is_not_there_fails_its_deployment_for_good_and_says_why(
    plane: WholePlane, mirror: HubMirror
) -> None:
    await plane.agent("box")
    await apply(plane)  # the repository is not seen by the control plane; a machine might have a right to it

    async def failed() -> Replica | None:
        return next((r for r in await plane.store.find(Replica) if r.status == "failed"), None)

    replica = await plane.until(failed, "its replica failed")
    assert replica.reason is not None
    assert "image_pull_failed" in str(replica.fail_reason)
    await asyncio.gather(plane.machine_is("box", "Ready"))
    shown = (await ask(plane, "GET", "/namespaces/default/deployments/tiny")).json()
    assert shown["phase"] == "BUILD_FAILED"
    assert REPO in str(shown["last_failure"])
