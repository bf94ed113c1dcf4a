"""Requests, retries, errors, pages and streams of the SDK against a scripted server."""

import asyncio
import json

import httpx
import pytest
from scripted_server import URL, FakeTime, Script, client_of, deployment

from moorage.client import AsyncClient, Client
from moorage.client.transports import AsyncTransport
from moorage.domain.errors import (
    Conflict,
    Forbidden,
    Gone,
    InvalidSpec,
    KeyReused,
    MoorageError,
    NotFound,
    QuotaExceeded,
    TooLarge,
    Unauthorized,
    Unavailable,
)

SPEC = {"name": "gemma", "runtime": {"command": ["server"]}}
ACCEPTED = {"deployment": "dep-1", "revision": "rev-1", "operation": "op-1", "changed": True}


class Recorded:
    """Answers with the given ones in turn, and keeps the requests."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    @property
    def keys(self):
        return [r.headers.get("idempotency-key") for r in self.requests]


def test_an_apply_sends_the_whole_normalised_document_to_its_own_address():
    server = Recorded(ACCEPTED)
    applied = client_of(server, namespace="team").deployments.apply(SPEC, key="build-1", create_only=True)
    request = server.requests[0]
    sent = json.loads(request.content)
    assert (request.method, request.url.path) == ("PUT", "/api/v1/namespaces/team/deployments/gemma")
    assert (sent["namespace"], sent["replicas"]["min"]) == ("team", 1)
    assert (request.headers["idempotency-key"], request.headers["if-none-match"]) == ("build-1", "*")
    assert (applied.revision, applied.operation, applied.changed) == ("rev-1", "op-1", True)
    assert applied.deployment == {"kind": "Deployment", "name": "gemma", "namespace": "team", "id": "dep-1"}


def test_a_namespace_that_the_spec_names_wins_over_the_clients():
    server = Recorded(ACCEPTED)
    client_of(server, namespace="team").deployments.apply({**SPEC, "namespace": "other"})
    assert "/namespaces/other/" in server.requests[0].url.path


@pytest.mark.parametrize(
    "trouble", [httpx.ConnectError("refused"), httpx.RemoteProtocolError("closed"), httpx.ReadTimeout("late")]
)
def test_a_mutation_without_an_answer_is_sent_again_under_the_same_key(trouble):
    server = Recorded(trouble, ACCEPTED)
    client_of(server).deployments.apply(SPEC)
    assert len(server.keys) == 2
    assert server.keys[0] == server.keys[1] != ""


def test_two_mutations_never_share_a_drawn_key():
    server = Recorded({})
    client = client_of(server)
    client.deployments.stop("a")
    client.deployments.stop("a")
    assert server.keys[0] != server.keys[1]


def test_a_mutation_is_not_sent_again_without_end_nor_beyond_its_time():
    server, clock = Recorded(httpx.ConnectError("refused")), FakeTime()
    with pytest.raises(Unavailable):
        client_of(server, clock, timeout_s=30).deployments.stop("a")
    assert len(server.requests) == 3
    hurried = Recorded(httpx.ConnectError("refused"))
    with pytest.raises(Unavailable):
        client_of(hurried, FakeTime(), timeout_s=0.1).deployments.stop("a")
    assert len(hurried.requests) == 1


def test_an_answered_refusal_is_not_sent_again():
    server = Recorded(httpx.Response(409, json={"code": "conflict", "message": "it is being deleted"}))
    with pytest.raises(Conflict):
        client_of(server).deployments.stop("a")
    assert len(server.requests) == 1


def test_a_read_on_a_connection_that_the_server_had_closed_is_tried_once_more():
    server = Recorded(httpx.RemoteProtocolError("closed"), deployment("ACTIVE"))
    assert client_of(server).deployments.get("gemma")["phase"] == "ACTIVE"


def test_a_refused_connection_says_where_and_how_to_start():
    with pytest.raises(Unavailable) as caught:
        client_of(Recorded(httpx.ConnectError("[Errno 111] Connection refused"))).deployments.list()
    assert URL in caught.value.message
    assert "moor up" in caught.value.remedy
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "unauthorized", Unauthorized),
        (403, "forbidden", Forbidden),
        (404, "not_found", NotFound),
        (409, "conflict", Conflict),
        (409, "rollout_unavailable", Conflict),
        (409, "idempotency_key_reused", KeyReused),
        (410, "gone", Gone),
        (413, "too_large", TooLarge),
        (422, "invalid_spec", InvalidSpec),
        (429, "quota_exceeded", QuotaExceeded),
        (503, "unavailable", Unavailable),
        (503, "a_later_code", Unavailable),
        (500, "internal", MoorageError),
    ],
)
def test_the_servers_error_object_becomes_the_error_of_its_kind(status, code, kind):
    told = {
        "code": code,
        "category": "x",
        "message": "what happened",
        "retryable": True,
        "remedy": "what to do",
        "target": "Deployment default/a",
        "errors": [{"path": "runtime", "message": "is required"}],
    }
    answer = httpx.Response(status, json=told, headers={"Retry-After": "7"})
    with pytest.raises(kind) as caught:
        client_of(Recorded(answer)).deployments.get("a")
    error = caught.value
    assert type(error) is kind
    assert (error.code, error.message, error.remedy, error.target, error.status) == (
        code,
        "what happened",
        "what to do",
        "Deployment default/a",
        status,
    )
    if kind is InvalidSpec:
        assert error.errors == told["errors"]
    if kind is Unavailable:
        assert error.retry_after_s == 7.0


@pytest.mark.parametrize("answer", [httpx.Response(502, text="<html>bad gateway"), httpx.Response(200, text="hello")])
def test_an_answer_that_is_not_moorages_says_so(answer):
    with pytest.raises(MoorageError) as caught:
        client_of(Recorded(answer)).deployments.get("a")
    assert caught.value.code == "foreign_answer"
    assert "MOORAGE_URL" in caught.value.remedy


@pytest.mark.parametrize("name", ["a/../b?x", "..", ".", "", "A", "x\x1b[31m", "x" * 64, "a%2fb"])
def test_what_no_deployment_can_be_called_is_refused_before_any_request(name):
    server = Recorded({"items": [], "next": None})
    client = client_of(server)
    for ask in (client.deployments.get, client.deployments.history, client.deployments.stop, client.runs.get):
        with pytest.raises(InvalidSpec) as caught:
            ask(name)
        assert caught.value.remedy
        assert caught.value.message.isprintable()
    assert server.requests == []


@pytest.mark.parametrize("part", ["..", ".", "", "a/b", "a?b", "a b", "x\x1b[31m"])
def test_no_id_leads_to_another_path(part):
    server = Recorded({})
    client = client_of(server)
    for ask in (client.operations.get, client.machines.get, client.request, client.workers.get, client.replicas.get):
        with pytest.raises(InvalidSpec):
            ask(part)
    with pytest.raises(InvalidSpec):
        client.deployments.get("good", namespace=part)
    assert server.requests == []


def test_an_apply_is_given_no_more_time_than_the_caller_has():
    clock, limits = FakeTime(), []

    def silent(request):
        limits.append(request.extensions["timeout"]["read"])
        clock.now += limits[-1]
        raise httpx.ReadTimeout("silent")

    with pytest.raises(Unavailable):
        client_of(silent, clock).deployments.apply(SPEC, timeout_s=5.0)
    assert limits == [5.0]
    assert clock.now == 1005.0


def test_lists_are_read_page_after_page():
    server = Recorded({"items": [{"id": "1"}, {"id": "2"}], "next": "2"}, {"items": [{"id": "3"}], "next": None})
    found = client_of(server).deployments.list(labels={"team": "search", "tier": "dev"})
    assert [item["id"] for item in found] == ["1", "2", "3"]
    assert [r.url.params.get("after") for r in server.requests] == [None, "2"]
    assert server.requests[1].url.params["labels"] == "team=search,tier=dev"


def test_a_file_with_several_documents_is_not_applied_by_half(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("kind: Drive\nname: a\nsize: 1\n---\nkind: Drive\nname: b\nsize: 1\n")
    server = Recorded(ACCEPTED)
    with pytest.raises(InvalidSpec, match="2 documents"):
        client_of(server).deployments.apply(str(file))
    with pytest.raises(InvalidSpec, match="cannot read"):
        client_of(server).deployments.apply(tmp_path / "none.yaml")
    with pytest.raises(InvalidSpec, match="a Deployment is needed"):
        client_of(server).deployments.apply({"kind": "Drive", "name": "a", "size": 1})
    assert server.requests == []


def test_paths_in_an_applied_file_are_meant_from_its_directory(tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text("kind: Deployment\nname: a\nruntime: {command: [x], workdir: .}\n")
    server = Recorded(ACCEPTED)
    client_of(server).deployments.apply(file)
    assert json.loads(server.requests[0].content)["runtime"]["workdir"] == str(tmp_path)


def stream(*lines):
    return httpx.Response(200, text="".join(f"{line}\n" for line in lines))


def test_events_are_followed_across_broken_connections_from_the_last_cursor():
    server = Recorded(
        stream("id: 10", "", "id: 11", 'data: {"to": "a", "cursor": "11"}', "", 'data: {"to": "cut'),
        httpx.ConnectError("restarting"),
        stream(": quiet", "", "id: 12", 'data: {"to": "b", "cursor": "12"}', ""),
        httpx.Response(410, json={"code": "gone", "message": "the cursor was pruned"}),
    )
    found = client_of(server).events.follow()
    assert [next(found)["to"], next(found)["to"]] == ["a", "b"]
    with pytest.raises(Gone):
        next(found)
    assert [r.url.params.get("after") for r in server.requests] == [None, "11", "11", "12"]


def test_events_that_cannot_be_had_at_all_fail_at_once():
    server = Recorded(httpx.ConnectError("refused"))
    with pytest.raises(Unavailable):
        next(client_of(server).events(follow=True))
    assert len(server.requests) == 1


def test_events_told_gone_within_the_stream_are_gone():
    server = Recorded(stream("id: 1", "", "event: error", 'data: {"code": "gone", "message": "pruned"}', ""))
    with pytest.raises(Gone):
        next(client_of(server).events.follow("0"))


def log(kind, line, seq=None, worker="gemma-0"):
    return json.dumps({"kind": kind, "line": line, "seq": seq, "worker": worker})


def test_a_followed_log_goes_on_after_a_break_without_repeating_and_ends_with_its_subject():
    streams = [
        stream(log("line", "one", 1), log("heartbeat", ""), log("line", "two", 2)),
        httpx.ConnectError("restarting"),
        stream(log("line", "two", 2), log("line", "three", 3), log("event", "gemma is over: stopped")),
    ]
    states = [deployment("SCALED_TO_ZERO", status="paused"), deployment("INACTIVE", status="stopped")]

    def handler(request):
        if not request.url.path.endswith("/logs"):
            return httpx.Response(200, json=states.pop(0))
        assert request.headers["accept"] == "application/x-ndjson"
        answer = streams.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = list(client_of(handler).deployments.logs("gemma", follow=True))
    assert [line["line"] for line in found] == ["one", "two", "three", "gemma is over: stopped"]
    assert streams == states == []


def test_a_log_of_now_is_read_once():
    server = Recorded(stream(log("line", "one", 1)))
    found = list(client_of(server).deployments.logs("gemma", lines=5, previous=True, grep="o"))
    assert [line["line"] for line in found] == ["one"]
    assert dict(server.requests[0].url.params) == {"lines": "5", "previous": "true", "grep": "o"}


def test_a_log_by_name_alone_finds_a_run_where_no_deployment_has_that_name():
    def handler(request):
        path = request.url.path
        if "/deployments/" in path:
            return httpx.Response(404, json={"code": "not_found", "message": "there is no deployment default/train"})
        return (
            stream(log("line", "one", 1)) if path.endswith("/logs") else httpx.Response(200, json={"state": "Running"})
        )

    assert [line["line"] for line in client_of(handler).logs("train")] == ["one"]


def test_what_nothing_is_called_is_told_as_a_deployment_that_is_missing():
    missing = httpx.Response(404, json={"code": "not_found", "message": "there is none"})
    client = client_of(Recorded(missing))
    for ask in (client.why, client.history, lambda name: list(client.logs(name))):
        with pytest.raises(NotFound):
            ask("nothing")


def test_the_history_of_a_worker_is_found_by_its_id():
    def answers(request):
        if request.url.path.endswith("/workers/wrk-1/history"):
            return httpx.Response(200, json={"items": [{"to": "Running"}], "next": None})
        return httpx.Response(404, json={"code": "not_found", "message": "there is none"})

    assert client_of(answers).history("wrk-1") == [{"to": "Running"}]


def test_the_asynchronous_client_does_the_same():
    script = Script(deployment("DEPLOYING", active_revision=None), deployment("ACTIVE"))

    async def work():
        transport = AsyncTransport(URL, {}, httpx.MockTransport(script))
        async with AsyncClient(URL, transport=transport) as client:
            applied = await client.deployments.apply(SPEC)
            outcome = await applied.wait("ready", interval_s=0)
            return applied.revision, outcome.serving

    assert asyncio.run(work()) == ("rev-2", True)


def test_a_read_of_the_asynchronous_client_is_limited_as_a_whole():
    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            await asyncio.Event().wait()

    async def work():
        async with AsyncClient(URL, timeout_s=0.05, transport=AsyncTransport(URL, {}, Silent())) as client:
            await client.deployments.get("gemma")

    with pytest.raises(Unavailable, match=r"no answer within 0\.05 s"):
        asyncio.run(work())


def test_the_blocking_client_works_inside_a_running_event_loop():
    async def work():
        return client_of(Recorded(deployment("ACTIVE"))).deployments.get("gemma")["phase"]

    assert asyncio.run(work()) == "ACTIVE"


def test_both_clients_have_the_same_methods():
    blocking = Client(URL)
    asynchronous = AsyncClient(URL)
    for name in ("deployments", "runs", "workers", "replicas", "events", "machines", "operations"):
        theirs = {m for m in dir(getattr(asynchronous, name)) if not m.startswith("_")}
        assert theirs <= set(dir(getattr(blocking, name)))
    assert {m for m in dir(asynchronous) if not m.startswith("_")} <= set(dir(blocking))
    blocking.close()


def test_an_answer_that_trickles_in_is_cut_at_its_limit():
    clock = FakeTime()

    class Trickle(httpx.SyncByteStream):
        def __iter__(self):
            while True:
                clock.now += 0.3
                yield b" "

    with pytest.raises(Unavailable, match="no answer within 2 s"):
        client_of(Recorded(httpx.Response(200, stream=Trickle())), clock, timeout_s=2).deployments.get("gemma")
    assert clock.now < 1003


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_no_finite_number_is_refused_before_anything_is_sent(value: float):
    server = Recorded({})
    with pytest.raises(InvalidSpec, match="is no score"):
        client_of(server).deployments.post_evidence("gemma", revision=2, metric="eval", value=value, samples=5)
    assert server.requests == []
