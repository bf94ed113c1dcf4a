"""What the model cache of a machine may never do, and who waits for whom; against a played hub, on a real disk."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from moorage.agent.given import Refused
from moorage.agent.models import words
from moorage.agent.models.cache import ModelCache, Want
from moorage.agent.models.fetching import Fetch, Job, Progress
from moorage.agent.models.news import FetchNews
from moorage.agent.models.shelf import Shelf
from moorage.domain.reasons import Reason
from moorage.domain.sources import HubSource, hub_source
from moorage.sources.hub import SourceError
from tests.played_hub import NEW, OLD, PlayedHub


class Hours:
    """A clock whose waits are over at once, and take as long as they were to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.at += seconds


class Standing(Hours):
    """A clock that stands still: no wait is over."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., ModelCache]]:
    made: list[ModelCache] = []

    def cache(hub: PlayedHub, limit_bytes: int | None = None, clock: Hours | None = None) -> ModelCache:
        shelf, log = Shelf(tmp_path / "models"), structlog.get_logger()
        made.append(ModelCache(shelf, hub, clock or Standing(), log, limit_bytes=limit_bytes))  # type: ignore[arg-type]  # played
        return made[-1]

    yield cache
    for one in made:
        await one.close()


def source_of(text: str) -> HubSource:
    found = hub_source(text)
    assert found is not None
    return found


def silent(source: HubSource, progress: Progress) -> None:
    return None


async def have(cache: ModelCache, text: str, want: Want | None = None) -> Path:
    return (await cache.obtain(source_of(text), want or Want(), silent)).path


async def until_waiting(cache: ModelCache, count: int) -> None:
    async with asyncio.timeout(60):
        while sum(f.waiting for f in cache.fetches.values()) != count:
            await asyncio.sleep(0)


async def until_fetching(hub: PlayedHub, cache: ModelCache) -> None:
    async with asyncio.timeout(60):
        while not any(f.progress.done for f in cache.fetches.values()):
            await asyncio.sleep(0)


async def test_who_leaves_does_not_end_the_fetch_of_who_stays(make) -> None:
    hub = PlayedHub()
    hub.go_on.clear()
    cache = make(hub)
    leaves, stays = [asyncio.create_task(have(cache, f"hf://o/n@{OLD}")) for _ in range(2)]
    await until_waiting(cache, 2)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    hub.go_on.set()
    assert (await stays).is_dir()
    assert len(hub.fetches) == 1


async def test_the_last_who_leaves_ends_the_fetch_and_what_came_stays(make) -> None:
    hub = PlayedHub()
    hub.go_on.clear()
    cache = make(hub)
    leaves = asyncio.create_task(have(cache, f"hf://o/n@{OLD}"))
    await until_fetching(hub, cache)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    assert not cache.fetches
    assert not cache.entries
    (left,) = await cache.partials()
    assert left.size >= hub.size // 2
    hub.go_on.set()
    assert (await have(cache, f"hf://o/n@{OLD}")).is_dir()
    assert not await cache.partials()


async def test_a_model_that_became_whole_while_everybody_left_is_known(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, begun, go_on = PlayedHub(), threading.Event(), threading.Event()
    cache, finish = make(hub), Shelf.finish

    def slowly(shelf: Shelf, *args: Any, **more: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return finish(shelf, *args, **more)

    monkeypatch.setattr(Shelf, "finish", slowly)
    leaves = asyncio.create_task(have(cache, f"hf://o/n@{OLD}"))
    assert await asyncio.to_thread(begun.wait, 60)
    leaves.cancel()
    go_on.set()
    await asyncio.gather(leaves, return_exceptions=True)
    assert [e.source.revision for e in cache.entries] == [OLD]
    await have(cache, f"hf://o/n@{OLD}")
    assert len(hub.fetches) == 1


async def test_a_fetch_in_which_nothing_comes_is_given_up_by_who_has_waited_long_enough(make) -> None:
    hub = PlayedHub()
    hub.go_on.clear()
    cache = make(hub, clock=Hours())
    with pytest.raises(Refused) as refused:
        await have(cache, f"hf://o/n@{OLD}", Want(stall_s=300.0))
    assert refused.value.why.code == "pull.stalled"
    assert not cache.fetches


async def fetched_by(hub: PlayedHub, clock: Hours, folder: Path) -> Fetch:
    async def planned(plan: object) -> None:
        return None

    job = Job(HubSource("o/n", OLD), None, str(folder), planned)
    fetch = Fetch(hub, job, clock, structlog.get_logger())  # type: ignore[arg-type]  # played
    await fetch.files()
    return fetch


async def test_a_hub_that_is_busy_is_asked_again_longer_and_longer_apart(tmp_path: Path) -> None:
    hub, clock = PlayedHub(), Hours()
    hub.fail = [SourceError("busy", "503")] * 9
    began = clock.at
    fetch = await fetched_by(hub, clock, tmp_path)
    assert len(hub.fetches) == 10
    assert clock.at - began == 1 + 2 + 4 + 8 + 16 + 32 + 3 * 60
    assert (fetch.progress.done, fetch.progress.trouble) == (hub.size, None)


async def test_bytes_that_are_wrong_are_fetched_again_twice_and_no_more(tmp_path: Path) -> None:
    hub = PlayedHub()
    hub.fail = [SourceError("corrupt", "sha256")] * 2
    await fetched_by(hub, Hours(), tmp_path)
    hub.fail = [SourceError("corrupt", "sha256")] * 3
    with pytest.raises(SourceError):
        await fetched_by(hub, Hours(), tmp_path)


@pytest.mark.parametrize("kind", ["missing", "revision", "denied", "refused"])
async def test_what_stays_so_is_tried_once_and_leaves_nothing(make, kind) -> None:
    hub = PlayedHub()
    hub.fail = [SourceError(kind, "no")]
    cache = make(hub)
    with pytest.raises(Refused) as refused:
        await have(cache, f"hf://o/n@{OLD}")
    assert (refused.value.why.code, refused.value.why.params["permanent"]) == ("model.fetch_failed", True)
    assert not await cache.partials()


async def test_a_branch_that_moved_is_another_model_and_the_old_one_stays(make) -> None:
    hub = PlayedHub()
    cache = make(hub)
    old = await have(cache, "hf://o/n@main")
    hub.commit = NEW
    new = await have(cache, "hf://o/n@main")
    assert old != new
    assert old.is_dir()
    assert [e.source.revision for e in cache.known(source_of("hf://o/n@main"))] == [NEW]


async def test_a_branch_of_a_hub_that_is_away_is_used_as_it_was_last(make) -> None:
    hub = PlayedHub()
    cache = make(hub)
    last = await have(cache, "hf://o/n@main")
    hub.fail = [SourceError("busy", "away")]
    assert await have(cache, "hf://o/n@main") == last


async def test_without_room_nothing_is_fetched_and_nothing_goes(make, tmp_path: Path) -> None:
    hub = PlayedHub(size=1000)
    cache = make(hub, limit_bytes=2500)
    cache.holders = lambda: [("wrk-1", tmp_path / "w")]
    used = await have(cache, f"hf://o/used@{OLD}", Want(folder=tmp_path / "w"))
    idle = await have(cache, f"hf://o/idle@{OLD}")
    hub.size = 2000
    with pytest.raises(Refused) as refused:
        await have(cache, f"hf://o/new@{OLD}")
    assert refused.value.why.code == "setup.failed"
    for said in ("no room", "MOORAGE_AGENT_MODELS_BYTES", "moor cache ls", "1 of 2 cached models are pinned or in use"):
        assert said in refused.value.why.message
    assert used.is_dir()
    assert idle.is_dir(), "it would not have been enough"
    assert not await cache.partials()


async def test_the_longest_unused_goes_first_and_a_pinned_one_never(make) -> None:
    hub, clock = PlayedHub(size=1000), Standing()
    cache = make(hub, limit_bytes=3500, clock=clock)
    for name in ("a", "b", "c"):
        await have(cache, f"hf://o/{name}@{OLD}")
        clock.at += 1
    await have(cache, f"hf://o/b@{OLD}")
    await cache.pin(cache.known(source_of(f"hf://o/a@{OLD}"))[0], pinned=True)
    await have(cache, f"hf://o/d@{OLD}")
    assert {e.source.repo for e in cache.entries} == {"o/a", "o/b", "o/d"}


async def test_what_a_worker_uses_stays_after_a_restart_of_the_agent(make, tmp_path: Path) -> None:
    hub = PlayedHub(size=1000)
    before = make(hub)
    await have(before, f"hf://o/n@{OLD}", Want(folder=tmp_path / "w"))
    await before.close()
    cache = make(hub, limit_bytes=1500)
    await cache.open()
    cache.holders = lambda: [("wrk-1", tmp_path / "w")]
    with pytest.raises(Refused):
        await have(cache, f"hf://o/other@{OLD}")
    assert [e.source.repo for e in cache.entries] == ["o/n"]


async def test_a_restricted_model_is_given_to_each_namespace_once_it_has_shown_its_right(make) -> None:
    hub = PlayedHub()
    hub.restricted, hub.tokens = True, {"good"}
    cache = make(hub)
    path = await have(cache, f"hf://o/n@{OLD}", Want("a", "good"))
    assert await have(cache, f"hf://o/n@{OLD}", Want("a", None)) == path
    with pytest.raises(Refused):
        await have(cache, f"hf://o/n@{OLD}", Want("b", "bad"))
    assert await have(cache, f"hf://o/n@{OLD}", Want("b", "good")) == path
    assert len(hub.fetches) == 1


async def test_a_bad_token_ends_only_the_wait_of_whose_it_is(make) -> None:
    hub = PlayedHub()
    hub.tokens = {"good"}
    cache = make(hub)
    bad, good = await asyncio.gather(
        have(cache, f"hf://o/n@{OLD}", Want("a", "bad")),
        have(cache, f"hf://o/n@{OLD}", Want("b", "good")),
        return_exceptions=True,
    )
    assert isinstance(bad, Refused)
    assert isinstance(good, Path)


async def test_a_prefetch_that_an_agent_did_not_end_is_ended_by_the_next(make) -> None:
    hub = PlayedHub()
    hub.go_on.clear()
    before = make(hub)
    before.prefetch(source_of("hf://o/n@main"), pin=True)
    await until_fetching(hub, before)
    await before.close()
    hub.go_on.set()
    cache = make(hub)
    await cache.open()
    async with asyncio.timeout(60):
        while not (cache.entries and cache.entries[0].pinned):
            await asyncio.sleep(0)


async def test_what_is_half_written_is_never_taken_for_a_model(make, tmp_path: Path) -> None:
    hub = PlayedHub()
    path = await have(make(hub), f"hf://o/n@{OLD}")
    (path.parent / "entry.json").write_text('{"source": ')
    (tmp_path / "models" / ".gone-x").mkdir()
    cache = make(hub)
    await cache.open()
    assert not cache.entries
    assert not (tmp_path / "models" / ".gone-x").exists()
    await have(cache, f"hf://o/n@{OLD}")
    assert len(hub.fetches) == 2


def test_a_wait_that_is_given_up_says_the_last_error_and_that_it_may_pass() -> None:
    source = HubSource("o/n", OLD)
    why = words.stalled(source, 300.0, SourceError("busy", "503 of the hub")).why
    assert (why.code, why.params["permanent"]) == ("model.fetch_failed", False)
    assert "503 of the hub" in why.message
    assert words.stalled(source, 300.0, None).why.code == "pull.stalled"


def test_a_long_fetch_tells_less_and_less_often_and_what_changes_at_once() -> None:
    clock = Hours()
    told: list[Reason] = []
    news, source = FetchNews(clock, told.append), HubSource("o/n", OLD)
    news.hear(source, Progress())
    news.hear(source, Progress(1, 100, 1))
    assert [r.params["total"] for r in told] == [100], "what is not known yet is not told"
    for second in range(600):
        clock.at += 1
        news.hear(source, Progress(second, 1000, 5))
    assert 20 <= len(told) <= 60
    count = len(told)
    news.hear(source, Progress(600, 1000, 0, "503"))
    news.hear(source, Progress(600, 1000, 0, "503"))
    assert len(told) == count + 1
    assert told[-1].message.endswith("(interrupted: 503)")
    assert "5 B a second" in told[5].message
