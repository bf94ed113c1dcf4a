"""What the gateway tells of requests: metrics that Prometheus reads, and the way of a single request."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from gateway_rig import ModelServer, Rig, Seen, get, post, reply, running_gateway, until
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families

from moorage.cli.commands.inspect import words
from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import Generation, Limits, RouteSpec
from moorage.gateway import exposition
from moorage.wire.routing import Access, KeyRule

USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 2}}
TOKEN = "Authorization: Bearer tok\r\n"


def event(value: object) -> bytes:
    data = b"data: %b\n\n" % (value if isinstance(value, bytes) else json.dumps(value).encode())
    return b"%x\r\n%b\r\n" % (len(data), data)


def word(text: str) -> bytes:
    return event({"choices": [{"delta": {"content": text}}]})


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answers(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = json.loads(seen.body)
    if not body.get("stream"):
        writer.write(reply(json.dumps({"choices": [], "usage": USAGE}).encode()))
        return
    writer.write(STREAM)
    for n in range(3):
        writer.write(word(f"w{n}"))
        await writer.drain()
        await asyncio.sleep(0)
    if body.get("stream_options"):
        writer.write(event({"choices": [], "usage": USAGE}))
    writer.write(event(b"[DONE]") + b"0\r\n\r\n")


async def metrics(rig: Rig) -> dict[str, float]:
    text = (await rig.ask(get("/metrics"))).body.decode()
    return {f"{s.name}{sorted(s.labels.items())}": s.value for family in families(text) for s in family.samples}


def value(found: dict[str, float], name: str, **labels: str) -> float:
    return found[f"moorage_gateway_{name}{sorted(labels.items())}"]


async def record(rig: Rig, request_id: str) -> dict[str, object]:
    answer = await rig.ask(get(f"/moorage/requests/{request_id}", extra=TOKEN))
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


async def test_metrics_are_what_prometheus_reads_and_their_counts_are_those_of_the_requests(
    rig: Rig, server: ModelServer
) -> None:
    server.handler = answers
    rig.serve(server)
    await rig.ask(post())
    await rig.ask(post(stream=True))
    await rig.ask(post(stream=True, stream_options={"include_usage": True}))
    await rig.ask(post(model="nobody"))
    found = await metrics(rig)
    own = {"namespace": "default", "endpoint": "m", "deployment": "m"}
    assert value(found, "requests_total", **own, code="2xx") == 3
    assert value(found, "unrouted_total") == 1
    assert value(found, "tokens_total", **own, kind="prompt") == 18
    assert value(found, "tokens_total", **own, kind="completion") == 8
    assert value(found, "tokens_total", **own, kind="counted") == 3
    for name in ("request_seconds", "first_byte_seconds", "queued_seconds"):
        assert value(found, f"{name}_count", **own) == value(found, f"{name}_bucket", **own, le="+Inf") == 3
    gaps = value(found, "inter_token_seconds_count", **own)
    assert gaps == value(found, "inter_token_seconds_bucket", **own, le="+Inf") <= 5
    assert 0 < value(found, "first_byte_seconds_sum", **own) <= value(found, "request_seconds_sum", **own)
    replica = {"namespace": "default", "endpoint": "m", "revision": "rev-1", "replica": "r-0"}
    assert value(found, "replica_requests_total", **replica) == 3
    assert value(found, "replica_errors_total", **replica) == 0
    assert value(found, "replica_in_flight", **replica) == 0
    assert value(found, "replica_request_seconds_bucket", **replica, le="+Inf") == 3


async def test_every_family_is_there_once_with_its_help_and_buckets_only_grow(rig: Rig, server: ModelServer) -> None:
    server.handler = answers
    rig.serve(server)
    await rig.ask(post(stream=True))
    text = (await rig.ask(get("/metrics"))).body.decode()
    told = [line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(told) == len(set(told)) > 20
    grouped = [line.partition("{")[0] for line in text.splitlines() if not line.startswith("#")]
    runs = [name for before, name in zip(["", *grouped], grouped, strict=False) if before != name]
    plain = [name for name in runs if not name.endswith(("_bucket", "_sum", "_count"))]
    assert len(plain) == len(set(plain))
    for family in families(text):
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}
        series: dict[str, float] = {}
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                key = str(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                assert sample.value >= series.get(key, 0)
                series[key] = sample.value


async def test_who_asks_for_openmetrics_gets_it(rig: Rig, server: ModelServer) -> None:
    server.handler = answers
    rig.serve(server)
    await rig.ask(post(stream=True))
    answer = await rig.ask(get("/metrics", extra="Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n"))
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")
    names = {family.name for family in open_families(answer.body.decode())}
    assert {"moorage_gateway_requests", "moorage_gateway_request_seconds", "moorage_gateway_held"} <= names


async def test_several_processes_tell_one_sum(tmp_path: Path, rig: Rig, server: ModelServer) -> None:
    server.handler = answers
    async with running_gateway(tmp_path / "b", gateway_id="g-2") as other:
        for each in (rig, rig, other):
            each.serve(server)
            await each.ask(post(stream=True))
        texts = [(await each.ask(get("/metrics"))).body.decode() for each in (rig, other)]
    whole = exposition.merged(texts)
    found = {f"{s.name}{sorted(s.labels.items())}": s.value for family in families(whole) for s in family.samples}
    own = {"namespace": "default", "endpoint": "m", "deployment": "m"}
    assert value(found, "requests_total", **own, code="2xx") == 3
    assert value(found, "request_seconds_bucket", **own, le="+Inf") == 3
    assert value(found, "generation") == 1, "the table that all of them have"
    assert exposition.merged(texts[:1]) == texts[0]


async def test_series_end_with_what_they_are_of(rig: Rig, server: ModelServer, second_server: ModelServer) -> None:
    server.handler = second_server.handler = answers
    rig.serve(server, second_server)
    for _ in range(4):
        await rig.ask(post())
    assert 'replica="r-1"' in (await rig.ask(get("/metrics"))).body.decode()
    rig.serve(server)
    text = (await rig.ask(get("/metrics"))).body.decode()
    assert 'replica="r-1"' not in text
    assert 'replica="r-0"' in text
    assert {t.spec.replica for s in rig.gateway.hub.counts.stats.values() for t in s.replicas} <= {"r-0"}
    rig.apply()
    assert 'endpoint="m"' not in (await rig.ask(get("/metrics"))).body.decode()


async def test_a_request_is_told_of_after_its_replica_is_gone_by_an_id_of_the_clients_own(
    rig: Rig, server: ModelServer
) -> None:
    server.handler = answers
    target = server.target("r-7", worker="w-7", machine="box")
    rig.apply(RouteSpec(name="m", mode="serve", targets=(target,)))
    mine = await rig.ask(post(stream=True, stream_options={}, extra="X-Request-Id: trace:1.a_b-c\r\n"))
    assert mine.headers["x-request-id"] == "trace:1.a_b-c"
    rig.apply()
    found = await record(rig, "trace%3A1.a_b-c")
    named = ("endpoint", "deployment", "revision", "replica", "worker", "machine", "status", "outcome")
    assert [found[name] for name in named] == ["m", "m", "rev-1", "r-7", "w-7", "box", 200, "ok"]
    assert found["tokens"] == {"counted": 3}
    assert 0 <= found["queued_ms"] <= found["ttft_ms"] <= found["total_ms"]  # type: ignore[operator]
    assert not {"key", "retried"} & set(found), "what is not known is left out"


async def test_a_refused_request_is_told_of_too(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    refused = await rig.ask(post(model="nobody"))
    found = await record(rig, refused.headers["x-request-id"])
    assert (found["outcome"], found["status"]) == ("refused", 404)
    assert (found["error"], found["model"]) == ("model_not_found", "nobody")
    assert "replica" not in found
    assert words(found).splitlines()[1:3] == ["outcome     refused", "status      404"]
    assert "endpoint" not in words(found)


@pytest.mark.parametrize(
    ("head", "status", "error"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"X" * 2000, 431, "bad_request"),
        (b"GET / HT", 408, "request_timeout"),
    ],
)
async def test_one_whose_head_is_refused_or_late_is_told_of_and_logged_without_what_was_not_read(
    tmp_path: Path, server: ModelServer, head: bytes, status: int, error: str
) -> None:
    log = tmp_path / "access.jsonl"
    async with running_gateway(tmp_path, access_log=log, head_bytes_max=1024, head_timeout_s=0.5) as rig:
        rig.serve(server)
        client = await rig.connect()
        client.send(post())
        assert (await client.answer()).status == 200
        client.send(head)  # on the connection of another one
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (status, error)
        found = await record(rig, answer.headers["x-request-id"])
        assert (found["outcome"], found["status"], found["error"]) == ("refused", status, error)
        assert not found["endpoint"]
        assert not {"deployment", "replica", "key"} & set(found)
        assert value(await metrics(rig), "unrouted_total") == 1
        await until(lambda: log.exists() and len(log.read_bytes().splitlines()) > 1, "its line")
        line = json.loads(log.read_bytes().splitlines()[1])
        assert (line["status"], line["error"]) == (status, error)
        assert not {"method", "path"} & set(line)
        client.close()


async def test_one_that_waits_or_runs_is_told_of_before_it_ends(rig: Rig, server: ModelServer) -> None:
    go = asyncio.Event()

    async def late(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await answers(seen, reader, writer)

    server.handler = late
    rig.apply(RouteSpec(name="m", mode="asleep"))
    client = await rig.connect()
    client.send(post(extra="X-Request-Id: early\r\n"))
    await until(lambda: any(c.held for c in rig.gateway.hub.clients))
    held = await record(rig, "early")
    assert held["outcome"] == "held"
    assert "held: it waits" in words(held)
    rig.apply(RouteSpec(name="m", mode="serve", targets=(server.target("r-0"),), limits=Limits()))
    await until(lambda: len(server.seen) == 1)
    running = await record(rig, "early")
    assert (running["outcome"], running["replica"]) == ("in_flight", "r-0")
    go.set()
    assert (await client.answer()).status == 200
    client.close()
    ended = await record(rig, "early")
    assert (ended["outcome"], ended["tokens"]) == ("ok", {"prompt": 9, "completion": 4})
    found = await metrics(rig)
    assert value(found, "waited_total", namespace="default", endpoint="m", deployment="m") == 1


async def test_the_time_to_first_token_is_that_of_the_streams_first_byte_not_of_its_head(
    rig: Rig, server: ModelServer
) -> None:
    go = asyncio.Event()

    async def head_first(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await writer.drain()
        await go.wait()
        writer.write(word("late") + b"0\r\n\r\n")

    server.handler = head_first
    rig.serve(server)
    client = await rig.connect()
    client.send(post(stream=True, extra="X-Request-Id: ttft\r\n"))
    await client.head()
    [own] = [c for c in rig.gateway.hub.clients if c.first_at]
    head_ms = (own.first_at - own.started) * 1000
    await until(lambda: rig.gateway.hub.time() > own.first_at + 0.01)
    go.set()
    await client.reader.readuntil(b"0\r\n\r\n")
    client.close()
    found = await record(rig, "ttft")
    assert found["ttft_ms"] > head_ms + 9  # type: ignore[operator]


def test_a_requests_way_reads_well_in_a_terminal() -> None:
    found = {
        "request_id": "req-5f3a1c2e-17",
        "endpoint": "chat",
        "generation": 12,
        "revision": "rev-1",
        "replica": "r-1",
        "queued_ms": 12.345,
        "ttft_ms": 50.0,
        "total_ms": 1200.5,
        "status": 200,
        "bytes": 5120,
        "deployment": "gemma",
        "key": None,
        "tokens": {"prompt": 9, "completion": 40},
        "outcome": "cut",
        "retried": 1,
    }
    assert words(found) == "\n".join(
        [
            "request_id  req-5f3a1c2e-17",
            "outcome     cut: the replica died in the middle of the answer",
            "status      200",
            "endpoint    chat",
            "deployment  gemma",
            "generation  12",
            "revision    rev-1",
            "replica     r-1",
            "queued      12.3 ms",
            "ttft        50.0 ms",
            "total       1200.5 ms",
            "retried     1 time, over a new connection",
            "bytes       5120",
            "tokens      9 prompt, 40 completion",
        ]
    )


async def test_an_endpoint_that_people_made_is_told_of_by_its_name_beside_the_deployment(
    rig: Rig, server: ModelServer
) -> None:
    server.handler = answers
    route = RouteSpec(name="gemma", mode="serve", targets=(server.target("r-0"),))
    hub = rig.gateway.hub
    assert hub.apply(Generation("store-1", 1), [route], [BindingSpec(uid="e-1", name="chat", routes=(("gemma", 100),))])
    for name in ("chat", "chat", "gemma"):
        await rig.ask(post(model=name, stream=True, extra="X-Request-Id: last\r\n" if name == "chat" else ""))
    found = await record(rig, "last")
    assert (found["endpoint"], found["deployment"], found["replica"]) == ("chat", "gemma", "r-0")
    told = await metrics(rig)
    for name, count in (("chat", 2), ("gemma", 1)):
        labels = {"namespace": "default", "endpoint": name, "deployment": "gemma"}
        assert value(told, "requests_total", **labels, code="2xx") == count
        assert value(told, "inter_token_seconds_count", **labels) <= 2 * count
    replica = {"namespace": "default", "endpoint": "gemma", "revision": "rev-1", "replica": "r-0"}
    assert value(told, "replica_requests_total", **replica) == 3, "through every name that leads to it"
    assert hub.apply(Generation("store-1", 2), [route])
    text = (await rig.ask(get("/metrics"))).body.decode()
    assert 'endpoint="chat"' not in text
    assert 'endpoint="gemma",deployment="gemma",code="2xx"} 1' in text


async def test_the_key_that_was_shown_is_told_by_its_name_and_never_by_its_text(rig: Rig, server: ModelServer) -> None:
    text = "moor-key.abcdefghijklmnopqrstuvwxyz012345"
    digest = hashlib.sha256(text.encode()).hexdigest()
    rule = KeyRule(uid="k-1", name="ci", namespace="default", digest=digest)
    rig.serve(server)
    rig.gateway.hub.keys.configure(Access(number=1, keys=(rule,)))
    shown = f"Authorization: Bearer {text}\r\nX-Request-Id: keyed\r\n"
    assert (await rig.ask(post(extra=shown))).status == 200
    assert (await rig.ask(post(extra="X-Request-Id: bare\r\n"))).status == 200
    assert (await record(rig, "keyed"))["key"] == "ci"
    assert "key" not in await record(rig, "bare"), "of another request on whatever connection"
