"""What answers of a server mean, and when waiting ends; on an injected clock and an in-memory server."""

import httpx
import pytest

from moorage.runners.liveness import LivenessProbe
from moorage.runners.progress import Progress
from moorage.runners.readiness import WRONG_POLLS, ReadinessCheck, judge_health, listed_models
from moorage.wire.agent import Live, Ready


class FakeClock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Server:
    """Answers from a script by time: path → function of the clock's time."""

    def __init__(self, clock, health, models=None, request=None):
        self.clock, self.asked = clock, []
        self.answers = {"/health": health, "/v1/models": models, "/v1/chat/completions": request}

    def __call__(self, request):
        self.asked.append(request.url.path)
        answer = self.answers[request.url.path]
        status, body = answer(self.clock.at) if callable(answer) else answer
        if status == 0:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(status, json=body)


OK = (200, {"status": "ok"})
MODELS = (200, {"data": [{"id": "m"}, {"id": "alias"}]})


def check(server, progress=Progress, **given):
    http = httpx.AsyncClient(transport=httpx.MockTransport(server))
    return ReadinessCheck(Ready(**given), "http://server", http, server.clock, progress)


@pytest.mark.parametrize(
    ("status", "body", "meaning"),
    [
        (200, {"status": "ok"}, "ready"),
        (200, None, "ready"),
        (204, None, "ready"),
        (200, {"status": "no slot available"}, "ready"),
        (200, {"status": "loading model"}, "wait"),
        (503, {"error": {"message": "Loading model"}}, "wait"),
        (503, None, "wait"),
        (404, None, "wait"),
        (500, None, "wait"),
        (502, None, "never"),
        (504, None, "never"),
        (500, {"error": {"message": "out of memory"}}, "never"),
        (200, {"status": "error"}, "never"),
        (200, {"error": "engine dead"}, "never"),
    ],
)
def test_a_health_answer_means(status, body, meaning):
    answer = judge_health("/health", status, body)
    assert ("ready" if answer.ready else "never" if answer.final else "wait") == meaning


async def test_a_refused_connection_and_503_wait_and_each_reason_is_told_once():
    clock = FakeClock()
    server = Server(clock, lambda t: (0, None) if t < 1 else (503, None) if t < 2 else OK, MODELS)
    told = []
    assert await check(server, model="m").wait(told.append) is None
    assert [r.params.get("error") or r.params.get("status") for r in told] == ["connection refused", 503]


async def test_the_model_list_is_asked_only_where_a_model_is_expected():
    server = Server(FakeClock(), OK)
    assert await check(server).wait(lambda _: None) is None
    assert server.asked == ["/health"]


async def test_aliases_are_expected_too():
    server = Server(FakeClock(), OK, MODELS)
    assert await check(server, model="m", aliases=("alias",)).wait(lambda _: None) is None
    missing = await check(server, model="m", aliases=("other",)).wait(lambda _: None)
    assert missing.code == "ready.wrong_model"
    assert missing.message.endswith(", but not other")


async def test_a_wrong_model_is_final_only_after_some_polls_in_a_row():
    clock = FakeClock()
    late = Server(clock, OK, lambda t: (200, {"data": []}) if t < 0.15 else MODELS)
    assert await check(late, model="m").wait(lambda _: None) is None
    wrong = Server(FakeClock(), OK, (200, {"data": [{"id": "x"}]}))
    why = await check(wrong, model="m").wait(lambda _: None)
    assert (why.code, why.params["listed"]) == ("ready.wrong_model", "x")
    assert wrong.asked.count("/v1/models") == WRONG_POLLS


async def test_the_total_limit_ends_a_wait_with_what_was_seen_last():
    why = await check(Server(FakeClock(), (503, None)), timeout_s=5, stall_s=100).wait(lambda _: None)
    assert why.code == "ready.timed_out"
    assert why.params["d"] == 5
    assert "503" in why.params["last"]


async def test_visible_progress_holds_off_the_stall_and_silence_does_not():
    clock = FakeClock()
    growing = check(
        Server(clock, lambda t: (503, None) if t < 50 else OK),
        progress=lambda: Progress(log=int(clock.at // 3)),
        timeout_s=1000,
        stall_s=10,
    )
    assert await growing.wait(lambda _: None) is None
    still = check(Server(FakeClock(), (503, None)), timeout_s=1000, stall_s=10)
    assert (await still.wait(lambda _: None)).code == "ready.stalled"


async def test_a_little_io_is_idling_and_not_progress():
    assert not Progress(1, 5000, 70_000).moved_since(Progress(1, 0, 0))
    assert Progress(1, 2 << 20, 0).moved_since(Progress(1, 0, 0))
    assert Progress(1, 0, 0).moved_since(Progress(1, 0, 2 << 20))


async def test_the_warmup_is_waited_for_after_health():
    clock = FakeClock()
    assert await check(Server(clock, OK), warmup_s=7).wait(lambda _: None) is None
    assert clock.at == 7


async def test_a_request_that_must_work_and_does_not_is_final_after_some_polls():
    broken = Server(FakeClock(), OK, MODELS, (500, {"error": {"message": "no kernel"}}))
    why = await check(broken, model="m", request={"messages": []}).wait(lambda _: None)
    assert (why.code, why.params["error"], why.params["status"]) == ("ready.request_failed", "no kernel", 500)
    working = Server(FakeClock(), OK, MODELS, (200, {"choices": []}))
    assert await check(working, model="m", request={"messages": []}).wait(lambda _: None) is None


@pytest.mark.parametrize("body", [None, [], {}, {"data": None}, {"data": [1, {"id": 3}]}])
def test_a_list_that_is_none_lists_nothing(body):
    assert listed_models(body) == []


async def test_a_probe_withdraws_after_some_failures_and_comes_back():
    clock = FakeClock()
    server = Server(clock, lambda t: (0, None) if 10 <= t < 30 or t > 60 else OK)
    http = httpx.AsyncClient(transport=httpx.MockTransport(server))
    probe = LivenessProbe(Live(interval_s=5, failures=3, fail_after_s=100), "http://server", http, clock)
    told = []
    why = await probe.watch(lambda r: told.append((clock.at, r.code)), lambda: told.append((clock.at, "back")))
    assert told == [(20.0, "live.failing"), (30.0, "back"), (75.0, "live.failing")]
    assert why.code == "live.failed"
    assert clock.at == 165


async def test_failures_that_are_not_in_a_row_withdraw_nothing():
    clock = FakeClock()
    server = Server(clock, lambda t: (0, None) if (t // 5) % 2 and t < 200 else OK if t < 200 else (0, None))
    http = httpx.AsyncClient(transport=httpx.MockTransport(server))
    probe = LivenessProbe(Live(interval_s=5, failures=3, fail_after_s=20), "http://server", http, clock)
    told = []
    await probe.watch(lambda _: told.append(clock.at), lambda: None)
    assert len(told) == 1
    assert told[0] >= 200
