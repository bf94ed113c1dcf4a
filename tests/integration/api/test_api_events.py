"""The event stream loses nothing, repeats nothing, and ends when it should."""

import asyncio
from functools import partial
from typing import Any

import pytest
from api_world import Exchange, World, events, last_id, until

from moorage.domain.nouns import Deployment

SSE = {"accept": "text/event-stream"}


async def make(world: World, *names: str, namespace: str = "default") -> None:
    for name in names:
        await world.rows.create(Deployment(uid=f"dep-{namespace}-{name}", name=name, namespace=namespace))


def names(found: list[dict[str, Any]]) -> list[str]:
    return [e["object"]["name"] for e in found]


async def test_a_stream_that_breaks_off_and_comes_back_loses_and_repeats_nothing(world: World) -> None:
    expected = [f"d{i:02}" for i in range(40)]
    await make(world, expected[0])
    cursor = (await world.admin.get("/api/v1/events")).json["cursor"]
    writing = asyncio.create_task(make(world, *expected[1:]))
    seen: list[dict[str, Any]] = []
    while len(seen) < len(expected) - 1:
        stream = world.admin.open("GET", "/api/v1/events", headers={**SSE, "last-event-id": cursor})
        await until(partial(has_some_events, stream))
        await stream.hang_up()  # in the middle of the writing
        seen += events(stream.text)
        cursor = last_id(stream.text)
    await writing
    assert names(seen) == expected[1:]
    assert len({e["cursor"] for e in seen}) == len(seen)


def has_some_events(stream: Exchange) -> bool:
    return len(events(stream.text)) >= 1


async def test_a_stream_without_a_cursor_begins_now_and_says_where_that_is(world: World) -> None:
    await make(world, "before")
    stream = world.admin.open("GET", "/api/v1/events", headers=SSE)
    await until(lambda: "id: " in stream.text)
    start = last_id(stream.text)
    await stream.hang_up()
    await make(world, "between")
    again = world.admin.open("GET", "/api/v1/events", headers={**SSE, "last-event-id": start})
    await until(lambda: events(again.text))
    await again.hang_up()
    assert names(events(again.text)) == ["between"]


async def test_events_hidden_by_a_filter_still_move_the_id(world: World) -> None:
    stream = world.admin.open("GET", "/api/v1/events?namespace=red", headers=SSE)
    await until(lambda: "id: " in stream.text)
    start = last_id(stream.text)
    await make(world, "hidden", namespace="blue")
    await until(lambda: last_id(stream.text) != start)
    moved = last_id(stream.text)
    await make(world, "shown", namespace="red")
    await until(lambda: events(stream.text))
    await stream.hang_up()
    assert names(events(stream.text)) == ["shown"]
    assert moved == (await world.admin.get("/api/v1/events?limit=1")).json["cursor"]


@pytest.mark.parametrize("headers", [SSE, {}])
async def test_a_cursor_of_another_store_is_410_before_anything_is_sent(world: World, headers: dict[str, str]) -> None:
    answer = await world.admin.get("/api/v1/events?after=0000000000000000.5", headers=headers)
    assert (answer.status, answer.json["code"]) == (410, "gone")
    if headers:
        resumed = {**headers, "last-event-id": "0000000000000000.5"}
        assert (await world.admin.get("/api/v1/events", headers=resumed)).status == 410


async def test_a_quiet_stream_gives_signs_of_life_and_ends_with_the_server(world: World) -> None:
    stream = world.admin.open("GET", "/api/v1/events", headers=SSE)
    await until(lambda: world.clock.sleeping)
    world.clock.advance(world.deps.settings.quiet_s)
    await until(lambda: ": nothing new" in stream.text)
    world.deps.closing.set()
    answer = await stream.answer()
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_page_goes_on_where_the_one_before_ended(world: World) -> None:
    await make(world, "a", "b", "c", "d", "e")
    seen: list[dict[str, Any]] = []
    after = ""
    while after is not None:
        page = (await world.admin.get("/api/v1/events?limit=2" + (f"&after={after}" if after else ""))).json
        seen += page["items"]
        after = page["next"]
    assert names(seen) == ["a", "b", "c", "d", "e"]
    newest = (await world.admin.get("/api/v1/events?limit=2&newest=true")).json
    assert names(newest["items"]) == ["d", "e"]
    assert newest["next"] is None
    assert newest["cursor"] == seen[-1]["cursor"]
    empty = (await world.admin.get(f"/api/v1/events?after={newest['cursor']}")).json
    assert empty == {"items": [], "next": None, "cursor": newest["cursor"]}


async def test_a_root_shows_only_what_belongs_to_it(world: World) -> None:
    await make(world, "a", "b")
    page = (await world.admin.get("/api/v1/events?root=dep-default-b")).json
    assert names(page["items"]) == ["b"]
