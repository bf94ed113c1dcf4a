"""What people are shown of a machine's model cache, and what its refusals become."""

import asyncio
from typing import Any

import pytest

from moorage.control.caches import CacheAsking, MachineCaches
from moorage.domain.errors import Conflict, InvalidSpec, MoorageError, NotFound, Unavailable
from moorage.domain.nouns import Machine, Worker
from moorage.wire.cache import CacheAnswer, CachedModel

BOX = Machine(uid="mch-1", name="box")
SOURCE = "hf://org/name@main"


class Rows:
    async def find(self, kind: type[Any], **equals: Any) -> list[Any]:
        assert kind is Worker
        return [Worker(uid=uid, name=f"name-of-{uid}", run="r") for uid in equals["uid"] if uid != "wrk-gone"]


class Impatient:
    """A clock on which every wait is over at once."""

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        return None


class Never(Impatient):
    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


def caches(answer: CacheAnswer | None) -> tuple[MachineCaches, list[Any]]:
    asking = CacheAsking(Impatient() if answer is None else Never())
    asked: list[Any] = []

    def agent(machine: str) -> None:
        asked.extend(asking.pending(machine))
        if answer is not None:
            asking.answer(machine, "q-1", answer)

    asking.on_change = agent
    return MachineCaches(Rows(), asking, lambda: "q-1"), asked  # type: ignore[arg-type]  # only its rows are read


async def test_users_are_shown_by_name_and_times_as_times() -> None:
    model = CachedModel(source=SOURCE, state="cached", used_at=0.0, used_by=("wrk-1", "wrk-gone"))
    cache, asked = caches(CacheAnswer(path="/models", models=(model,)))
    shown = await cache.ask(BOX)
    assert (shown["kind"], shown["machine"], shown["path"]) == ("ModelCache", "box", "/models")
    assert shown["models"][0]["used_by"] == ["name-of-wrk-1", "wrk-gone"]
    assert shown["models"][0]["used_at"].startswith("1970-01-01")
    assert asked[0].action == "list"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("model_in_use", Conflict),
        ("model_pinned", Conflict),
        ("model_absent", NotFound),
        ("model_ambiguous", Conflict),
        ("invalid_source", InvalidSpec),
    ],
)
async def test_a_refusal_of_the_machine_is_an_error_with_what_to_do(code: str, error: type[MoorageError]) -> None:
    cache, asked = caches(CacheAnswer(refused="it is so", code=code))
    with pytest.raises(error) as raised:
        await cache.ask(BOX, "evict", SOURCE)
    assert "box" in raised.value.message
    assert "it is so" in raised.value.message
    assert (asked[0].action, asked[0].source) == ("evict", SOURCE)


async def test_a_machine_that_is_silent_is_said_to_be() -> None:
    cache, _ = caches(None)
    with pytest.raises(Unavailable) as raised:
        await cache.ask(BOX)
    assert raised.value.code == "machine_silent"


@pytest.mark.parametrize("source", ["/models/x.gguf", "s3://bucket/x", "hf://noorg"])
async def test_what_is_no_source_of_a_hub_is_refused_before_a_machine_is_asked(source: str) -> None:
    cache, asked = caches(CacheAnswer())
    with pytest.raises(InvalidSpec):
        await cache.ask(BOX, "prefetch", source)
    assert not asked
