"""A probe is bounded in bytes and in time, whatever the server does."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from moorage.runners.liveness import LivenessProbe
from moorage.runners.probing import HEALTH_BYTES_MAX, ProbeFailed, TooLarge, probe
from moorage.runners.progress import Progress
from moorage.runners.readiness import WRONG_POLLS, ReadinessCheck
from moorage.wire.agent import Live, Ready

CHUNK = b"x" * 4096
OK = httpx.Response(200, json={"status": "ok"})


class Clock:
    """Time passes only in sleeps, and where the server takes some."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


async def wait_for_the_next_part(pause_s: float) -> None:
    """The pace of a server that trickles: what is tested is that nobody waits for it without limit."""
    await asyncio.sleep(pause_s)


class Endless:
    """Bodies without an end; counts what was taken of them."""

    def __init__(self, status: int = 200, pause_s: float = 0.0) -> None:
        self.status, self.pause_s = status, pause_s
        self.taken = self.closed = 0

    def answer(self) -> httpx.Response:
        return httpx.Response(self.status, content=self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            while True:
                await wait_for_the_next_part(self.pause_s)
                part = b"x" if self.pause_s else CHUNK
                self.taken += len(part)
                yield part
        finally:
            self.closed += 1


def client(**answers):
    """Answers by the last part of the path."""
    return httpx.AsyncClient(transport=httpx.MockTransport(lambda r: answers[r.url.path.rpartition("/")[2]]()))


async def test_no_more_of_an_endless_body_is_taken_than_its_limit_and_the_rest_is_dropped():
    endless = Endless()
    with pytest.raises(TooLarge, match="longer than 64 KiB") as failed:
        await probe(client(health=endless.answer), "GET", "http://s/health")
    assert failed.value.status == 200
    assert endless.taken <= HEALTH_BYTES_MAX + len(CHUNK)


async def test_a_body_that_comes_a_byte_at_a_time_is_given_up_when_the_whole_time_is_over():
    with pytest.raises(ProbeFailed, match="no answer in time"):
        await probe(client(health=Endless(pause_s=0.005).answer), "GET", "http://s/health", total_s=0.1)


async def test_a_body_at_its_limit_is_taken_whole():
    whole = httpx.Response(200, content=b"y" * HEALTH_BYTES_MAX)
    assert len((await probe(client(health=lambda: whole), "GET", "http://s/health")).content) == HEALTH_BYTES_MAX


async def test_what_is_packed_though_nobody_asked_for_it_is_not_unpacked():
    packed = httpx.Response(200, headers={"content-encoding": "gzip"}, content=Endless()._body())
    assert (await probe(client(health=lambda: packed), "GET", "http://s/health")).content == b""


async def test_json_nested_without_end_is_no_json():
    nested = httpx.Response(200, content=b"[" * HEALTH_BYTES_MAX)
    assert (await probe(client(health=lambda: nested), "GET", "http://s/health")).json is None


async def test_endless_health_is_a_failure_with_its_reason_after_some_polls():
    http = client(health=Endless().answer)
    why = await ReadinessCheck(Ready(), "http://s", http, Clock(), Progress).wait(lambda _: None)
    assert (why.code, why.params["error"]) == ("ready.failed", "the answer is longer than 64 KiB")


async def test_endless_health_that_comes_to_its_senses_is_ready():
    polls = iter([*(Endless().answer() for _ in range(WRONG_POLLS - 1)), OK])
    http = client(health=lambda: next(polls))
    told = []
    assert await ReadinessCheck(Ready(), "http://s", http, Clock(), Progress).wait(told.append) is None
    assert [r.code for r in told] == ["ready.failed"]


async def test_an_endless_model_list_is_a_failure_that_names_its_path():
    http = client(health=lambda: OK, models=Endless().answer)
    why = await ReadinessCheck(Ready(model="m"), "http://s", http, Clock(), Progress).wait(lambda _: None)
    assert (why.code, why.params["path"]) == ("ready.failed", "/v1/models")
    assert why.params["error"] == "the answer is longer than 1024 KiB"


async def test_an_endless_answer_to_the_request_that_must_work_fails_it():
    http = client(health=lambda: OK, completions=Endless().answer)
    check = ReadinessCheck(Ready(request={"messages": []}), "http://s", http, Clock(), Progress)
    why = await check.wait(lambda _: None)
    assert (why.code, why.params["error"]) == ("ready.request_failed", "the answer is longer than 1024 KiB")


async def test_a_ready_server_whose_health_has_no_end_is_withdrawn_and_then_given_up():
    probing = LivenessProbe(Live(), "http://s", client(health=Endless().answer), Clock())
    told = []
    why = await probing.watch(told.append, lambda: None)
    assert [r.code for r in told] == ["live.failing"]
    assert told[0].message.endswith("; ended if it goes on for 5m")
    assert (why.code, why.params["error"]) == ("live.failed", "the answer is longer than 64 KiB")


@pytest.mark.parametrize(("interval_s", "timeout_s"), [(5.0, 5.0), (0.5, 1.0), (60.0, 10.0)])
async def test_a_hung_server_is_withdrawn_an_interval_for_each_failure_and_one_time_out_after_it_was_well(
    interval_s, timeout_s
):
    clock, limits = Clock(), set()

    def hang(request):
        limit = request.extensions["timeout"]["read"]
        limits.add(limit)
        clock.at += limit
        raise httpx.ReadTimeout("hung", request=request)

    http = httpx.AsyncClient(transport=httpx.MockTransport(hang))
    told = []
    live = Live(interval_s=interval_s, failures=3, fail_after_s=100)
    await LivenessProbe(live, "http://s", http, clock).watch(lambda _: told.append(clock.at), lambda: None)
    assert limits == {timeout_s}
    step = max(interval_s, timeout_s)
    assert told == [interval_s + 2 * step + timeout_s]
