"""One measured request: what counts as answered, what as failed, what as not asked, and how a stream is counted."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from moorage.clock import SystemClock
from moorage.control.requesting import Answered, ask, listed_models

URL = "http://replica/v1/completions"
STREAM = {"content-type": "text/event-stream"}


class StepClock:
    """Half a second later at each look."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        self.at += 0.5
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


async def asked(answer: Callable[[httpx.Request], httpx.Response], limit_s: float = 60.0) -> Answered:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        return await ask(http, StepClock(), URL, {"prompt": "x"}, limit_s)


def events(*lines: object) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in lines)


TOKEN = {"choices": [{"text": "a"}]}


async def test_an_answer_in_one_piece_has_times_and_no_rate() -> None:
    found = await asked(lambda _: httpx.Response(200, json={"choices": []}))
    assert (found.error, found.status, found.tokens) == (None, 200, 0)
    assert 0 < found.first_s < found.total_s
    assert found.seen().throughput_milli == {}
    assert (found.seen().requests, found.seen().errors) == (1, 0)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (events(TOKEN, TOKEN, TOKEN, b"[DONE]"), 3),
        (events(TOKEN, {"choices": [], "usage": {"completion_tokens": 40}}, b"[DONE]"), 40),
        (events({**TOKEN, "usage": {"completion_tokens": 1}}, {**TOKEN, "usage": {"completion_tokens": 2}}), 2),
        (events({**TOKEN, "usage": None}, {**TOKEN, "usage": None}), 2),
        (events(b'not json with "usage" in it', TOKEN), 2),
        (events(TOKEN)[:-2], 1),
    ],
)
async def test_tokens_of_a_stream_are_its_usage_else_its_events(body: bytes, tokens: int) -> None:
    found = await asked(lambda _: httpx.Response(200, headers=STREAM, content=body))
    assert (found.error, found.tokens) == (None, tokens)
    assert sum(found.seen().throughput_milli.values()) == 1


async def test_events_that_come_in_pieces_are_counted_whole() -> None:
    whole = events(TOKEN, TOKEN, {"choices": [], "usage": {"completion_tokens": 7}})

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(whole), 5):
            yield whole[at : at + 5]

    found = await asked(lambda _: httpx.Response(200, headers=STREAM, content=pieces()))
    assert found.tokens == 7


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(500, text="out of memory\n"), "HTTP 500: out of memory"),
        (httpx.Response(404), "HTTP 404: no body"),
        (httpx.Response(302, headers={"location": "/"}), "HTTP 302"),
        (httpx.Response(200, content=b""), "an empty answer"),
        (httpx.Response(200, headers=STREAM, content=events(TOKEN, {"error": {"message": "boom"}})), "boom"),
    ],
)
async def test_what_is_no_good_answer_is_a_failure(answer: httpx.Response, says: str) -> None:
    found = await asked(lambda _: answer)
    assert says in str(found.error)
    assert (found.seen().requests, found.seen().errors, found.seen().latency_us) == (1, 1, {})
    assert not found.unreachable


async def test_an_answer_that_is_cut_is_a_failure() -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield events(TOKEN)
        raise httpx.ReadError("peer closed")

    found = await asked(lambda _: httpx.Response(200, headers=STREAM, content=cut()))
    assert found.error == "peer closed"
    assert not found.unreachable


async def test_a_server_that_cannot_be_connected_to_was_not_asked() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    assert (await asked(refuse)).unreachable


async def test_an_answer_that_takes_too_long_is_a_failure() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield events(TOKEN)
        await asyncio.Event().wait()

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, headers=STREAM, content=endless()))
    ) as http:
        found = await ask(http, SystemClock(), URL, {}, 0.05)
    assert "no whole answer within" in str(found.error)


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (httpx.Response(200, json={"data": [{"id": "a", "aliases": ["b"]}, {"id": 3}]}), ["a", "b"]),
        (httpx.Response(200, json={"data": []}), []),
        (httpx.Response(200, json=["a"]), None),
        (httpx.Response(200, text="no"), None),
        (httpx.Response(503), None),
    ],
)
async def test_a_list_of_models_is_read_or_not_known(answer: httpx.Response, names: list[str] | None) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answer)) as http:
        assert await listed_models(http, "http://replica", 5.0) == names
