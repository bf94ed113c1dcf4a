"""Requests that come again and again until they are answered."""

import asyncio
from dataclasses import dataclass

import structlog
from structlog.testing import capture_logs

from moorage.agent.asked import Asked


@dataclass(frozen=True)
class Wish:
    id: str


async def test_a_request_that_is_told_again_is_served_once_and_again_after_its_end() -> None:
    served: list[str] = []
    gate = asyncio.Event()
    ended = asyncio.Event()

    async def serve(wish: Wish) -> None:
        served.append(wish.id)
        await gate.wait()
        ended.set()

    asked = Asked(serve, structlog.get_logger())
    asked.take([Wish("a"), Wish("b")])
    await asyncio.sleep(0)
    asked.take([Wish("a"), Wish("b")])
    await asyncio.sleep(0)
    assert served == ["a", "b"]
    gate.set()
    await ended.wait()
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    asked.take([Wish("a")])
    await asyncio.sleep(0)
    assert served == ["a", "b", "a"]


async def test_an_error_in_one_is_logged_and_the_others_are_served() -> None:
    served = asyncio.Event()

    async def serve(wish: Wish) -> None:
        if wish.id == "bad":
            raise RuntimeError("a defect")
        served.set()

    with capture_logs() as logged:
        Asked(serve, structlog.get_logger()).take([Wish("bad"), Wish("good")])
        await served.wait()
    assert [(entry["event"], entry["request"]) for entry in logged] == [("internal error", "bad")]
