"""What people see and change of a machine's models, without a hub: wishes are carried out or refused with the cause."""

from pathlib import Path
from typing import Any

import pytest
import structlog

from moorage.agent.models.cache import ModelCache, Want
from moorage.agent.models.desk import answer_to
from moorage.agent.models.fetching import Progress
from moorage.agent.models.shelf import Shelf
from moorage.clock import SystemClock
from moorage.domain.sources import HubSource, hub_source
from moorage.wire.cache import CacheRequest
from tests.played_hub import NEW, OLD, PlayedHub


@pytest.fixture
def hub() -> PlayedHub:
    return PlayedHub()


@pytest.fixture
def cache(tmp_path: Path, hub: PlayedHub) -> ModelCache:
    return ModelCache(Shelf(tmp_path / "models"), hub, SystemClock(), structlog.get_logger())  # type: ignore[arg-type]  # played


async def have(cache: ModelCache, text: str, want: Want | None = None) -> Path:
    source = hub_source(text)
    assert source is not None
    return (await cache.obtain(source, want or Want(), _silent)).path


def _silent(source: HubSource, progress: Progress) -> None:
    return None


async def do(cache: ModelCache, action: Any, source: str) -> str | None:
    return (await answer_to(cache, CacheRequest(id="q", action=action, source=source))).code


async def test_a_model_is_told_with_all_that_is_known_of_it(cache: ModelCache, hub: PlayedHub, tmp_path: Path) -> None:
    cache.holders = lambda: [("wrk-1", tmp_path / "w")]
    path = await have(cache, "hf://org/name@main/m.gguf", Want(folder=tmp_path / "w"))
    told = await answer_to(cache, CacheRequest(id="q"))
    (model,) = told.models
    assert (model.state, model.source, model.names) == (
        "cached",
        f"hf://org/name@{OLD}/m.gguf",
        ("hf://org/name@main/m.gguf",),
    )
    assert (model.commit, model.size, model.path, model.used_by) == (OLD, hub.size, str(path), ("wrk-1",))
    assert told.free_bytes > 0
    assert told.path == str(tmp_path / "models")


@pytest.mark.parametrize("source", [f"hf://org/name@{OLD}", "hf://org/name@main", "hf://org/name"])
async def test_a_model_is_meant_by_its_commit_and_by_any_branch_while_it_is_the_only_one(
    cache: ModelCache, source: str
) -> None:
    await have(cache, f"hf://org/name@{OLD}")
    assert await do(cache, "pin", source) is None
    assert await do(cache, "evict", source) == "model_pinned"
    assert await do(cache, "unpin", source) is None
    assert await do(cache, "evict", source) is None
    assert not cache.entries


async def test_of_two_commits_the_one_must_be_named(cache: ModelCache) -> None:
    await have(cache, f"hf://org/name@{OLD}")
    await have(cache, f"hf://org/name@{NEW}")
    assert await do(cache, "evict", "hf://org/name@main") == "model_ambiguous"
    assert await do(cache, "evict", f"hf://org/name@{OLD}") is None
    assert [e.source.revision for e in cache.entries] == [NEW]


async def test_a_branch_that_was_looked_up_here_means_what_it_meant_last(cache: ModelCache, hub: PlayedHub) -> None:
    await have(cache, "hf://org/name@main")
    hub.commit = NEW
    await have(cache, "hf://org/name@main")
    assert await do(cache, "evict", "hf://org/name@main") is None
    assert [e.source.revision for e in cache.entries] == [OLD]


async def test_what_a_held_worker_uses_is_not_removed_and_what_a_gone_one_used_is(
    cache: ModelCache, tmp_path: Path
) -> None:
    source = f"hf://org/name@{OLD}"
    cache.holders = lambda: [("wrk-1", tmp_path / "w")]
    await have(cache, source, Want(folder=tmp_path / "w"))
    assert await do(cache, "evict", source) == "model_in_use"
    cache.holders = lambda: []
    assert await do(cache, "evict", source) is None


@pytest.mark.parametrize(
    ("source", "code"),
    [("hf://org/other@main", "model_absent"), ("/models/x", "invalid_source"), ("s3://b/k", "invalid_source")],
)
async def test_what_is_not_here_or_no_model_of_a_hub_is_said_so(cache: ModelCache, source: str, code: str) -> None:
    assert await do(cache, "evict", source) == code


async def test_another_file_of_the_same_commit_is_another_model(cache: ModelCache, hub: PlayedHub) -> None:
    await have(cache, f"hf://org/name@{OLD}")
    await have(cache, f"hf://org/name@{OLD}/m.gguf")
    await have(cache, f"hf://org/name@{OLD}")
    assert (len(cache.entries), len(hub.fetches)) == (2, 2)
