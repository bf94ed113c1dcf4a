"""Held requests, dying replicas, leaving clients."""

import asyncio
import json
import resource

import pytest
from gateway_rig import DEADLINE_S, ModelServer, Rig, Seen, get, post, reply, running_gateway, until

from moorage.decide.serving.routes import Limits, RouteSpec

BURST = min(1000, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200) // 2)
"""Both ends of each connection are in this process, which an ordinary user may not let have many descriptors."""


async def test_a_burst_at_a_sleeping_endpoint_is_one_demand_and_all_are_answered_once_it_wakes(
    rig: Rig, server: ModelServer
) -> None:
    edges: list[int] = []
    rig.gateway.hub.on_demand = lambda: edges.append(1)
    rig.serve(mode="asleep", max_queue=BURST)
    asking = [asyncio.ensure_future(rig.ask(post())) for _ in range(BURST)]
    endpoint = rig.router.find("m")
    await until(lambda: len(endpoint.waiting) == BURST, "all are held")
    rig.serve(mode="starting", max_queue=BURST)
    assert len(edges) == 1
    rig.serve(server, mode="serve", max_queue=BURST)
    answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}
    assert len(server.seen) == BURST
    assert len(edges) == 1
    assert server.connections <= 16


async def test_a_full_queue_is_said_at_once_with_retry_after(rig: Rig) -> None:
    rig.serve(mode="asleep", max_queue=10)
    asking = [asyncio.ensure_future(rig.ask(post())) for _ in range(50)]
    done, held = set(), set(asking)
    while len(done) < 40:
        more, held = await asyncio.wait(held, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        assert more
        done |= more
    assert {task.result().status for task in done} == {429}
    assert all(task.result().headers["retry-after"] for task in done)
    rig.apply(RouteSpec(name="m", mode="failed", error="exit code 3", error_code="exited"))
    answers = await asyncio.gather(*held)
    assert {(answer.status, answer.error["message"], answer.error["code"]) for answer in answers} == {
        (503, "exit code 3", "exited")
    }


async def test_none_sees_a_refused_connection_when_the_server_listens_after_it_was_said_ready(
    rig: Rig, server: ModelServer
) -> None:
    port = server.port
    await server.stop()
    late = ModelServer(port=port)
    rig.serve(mode="starting", queue_timeout_s=DEADLINE_S)
    asking = [asyncio.ensure_future(rig.ask(post())) for _ in range(50)]
    await until(lambda: len(rig.router.find("m").waiting) == 50)
    rig.serve(late, mode="serve", queue_timeout_s=DEADLINE_S)
    target = rig.router.find("m").targets[0]
    await until(lambda: target.failures >= 2, "connects were refused")
    await late.start(port)
    answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200}
    await late.stop()


async def test_a_flooded_cold_endpoint_leaves_another_serving(rig: Rig, server: ModelServer) -> None:
    warm = RouteSpec(name="warm", mode="serve", targets=(server.target(),))
    rig.apply(warm, RouteSpec(name="cold", mode="asleep", limits=Limits(max_queue=50)))
    flood = [asyncio.ensure_future(rig.ask(post("cold"))) for _ in range(300)]
    await until(lambda: sum(task.done() for task in flood) == 250, "overflow is answered")
    answers = [await rig.ask(post("warm")) for _ in range(20)]
    assert {answer.status for answer in answers} == {200}
    rig.apply(warm)
    assert {(await task).status for task in flood} == {429, 404}


async def test_a_failed_wake_answers_those_held_and_later_ones_wait_again(rig: Rig, server: ModelServer) -> None:
    rig.serve(mode="asleep")
    first = asyncio.ensure_future(rig.ask(post()))
    await until(lambda: len(rig.router.find("m").waiting) == 1)
    rig.apply(RouteSpec(name="m", mode="asleep", wake_failures=1, error="no such file: llama-server"))
    answer = await first
    assert (answer.status, answer.error["message"]) == (503, "no such file: llama-server")
    assert int(answer.headers["retry-after"]) >= 1
    second = asyncio.ensure_future(rig.ask(post()))
    await until(lambda: len(rig.router.find("m").waiting) == 1)
    rig.serve(server)
    assert (await second).status == 200


async def test_models_are_listed_while_they_sleep_start_hold_and_serve(rig: Rig, server: ModelServer) -> None:
    modes = {"a": "serve", "b": "hold", "c": "asleep", "d": "starting", "e": "failed", "f": "stopped"}
    rig.apply(*(RouteSpec(name=name, mode=mode, model=f"org/{name}") for name, mode in modes.items()))
    listed = json.loads((await rig.ask(get("/v1/models"))).body)
    assert [(model["id"], model["root"]) for model in listed["data"]] == [(n, f"org/{n}") for n in "abcd"]
    assert (await rig.ask(get("/v1/models/c"))).status == 200
    assert (await rig.ask(get("/v1/models/e"))).status == 404


async def test_hold_reports_what_runs_and_what_waits_and_lets_it_go(rig: Rig, server: ModelServer) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(reply())

    server.handler = wait
    rig.serve(server)
    running = asyncio.ensure_future(rig.ask(post()))
    await until(lambda: server.seen)
    rig.serve(server, mode="hold")
    held = asyncio.ensure_future(rig.ask(post()))
    endpoint = rig.router.find("m")
    await until(lambda: endpoint.waiting)
    assert (endpoint.in_flight, len(endpoint.waiting)) == (1, 1)
    gate.set()
    assert (await running).status == 200
    assert (endpoint.in_flight, len(endpoint.waiting)) == (0, 1)
    assert not held.done()
    rig.serve(server)
    assert (await held).status == 200


async def test_requests_beyond_what_a_replica_takes_wait_their_turn(rig: Rig, server: ModelServer) -> None:
    now = most = 0

    async def count(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        writer.write(reply())

    server.handler = count
    rig.serve(server, max_in_flight=3)
    answers = await asyncio.gather(*(rig.ask(post()) for _ in range(60)))
    assert {answer.status for answer in answers} == {200}
    assert most <= 3


async def test_the_other_replica_serves_when_one_is_killed(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    rig.serve(server, second_server)
    await server.stop()
    answers = [await rig.ask(post()) for _ in range(30)]
    assert {answer.status for answer in answers} == {200}
    assert len(second_server.seen) == 30


async def test_a_replica_put_aside_comes_back_when_it_answers(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    port = server.port
    rig.serve(server, second_server)
    await server.stop()
    for _ in range(10):
        await rig.ask(post())
    back = await ModelServer().start(port)
    async with asyncio.timeout(DEADLINE_S):
        while not back.seen:
            await rig.ask(post())
    await back.stop()


async def test_a_post_is_never_repeated_once_its_bytes_were_sent(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    async def die(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if len(server.seen) > 1:
            return False
        writer.write(reply())
        return True

    server.handler = die
    rig.serve(server)
    client = await rig.connect()
    client.send(post())
    assert (await client.answer()).status == 200
    client.send(post())
    answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (502, "upstream_closed")
    client.close()
    assert len(server.seen) == 2


async def test_an_idle_connection_that_the_server_closed_is_not_used(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    client = await rig.connect()
    for _ in range(3):
        client.send(post())
        assert (await client.answer()).status == 200
        for writer in list(server.writers):
            writer.close()
        pool = next(iter(rig.gateway.hub._pools.values()))
        await until(lambda pool=pool: not pool.idle, "the pool saw the close")
    client.close()
    assert len(server.seen) == 3


async def test_a_malformed_answer_is_an_error_and_is_not_tried_again(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    async def nonsense(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )

    server.handler = second_server.handler = nonsense
    rig.serve(server, second_server)
    assert (await rig.ask(post())).status == 502
    assert len(server.seen) + len(second_server.seen) == 1


@pytest.mark.parametrize("framing", ["length", "chunked", "bad chunk"])
async def test_a_replica_that_dies_in_the_middle_never_looks_like_a_clean_end(
    rig: Rig, server: ModelServer, framing: str
) -> None:
    answer_begun = asyncio.Event()

    async def die(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = "Content-Length: 100" if framing == "length" else "Transfer-Encoding: chunked"
        body = b"4\r\npart\r\n" if framing != "length" else b"part"
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body)
        await writer.drain()
        await answer_begun.wait()
        if framing == "bad chunk":
            writer.write(b"zz\r\n")
            await reader.read()
        return False

    server.handler = die
    rig.serve(server)
    client = await rig.connect()
    client.send(post(extra="X-Request-Id: cut-1\r\n"))
    await client.head()
    answer_begun.set()
    rest = await client.rest()
    assert b"part" in rest
    assert not rest.endswith(b"0\r\n\r\n")
    assert rig.gateway.hub.counts.ring.find(b"cut-1").outcome == "cut"
    assert rig.router.find("m").in_flight == 0


async def test_a_client_that_leaves_cancels_its_request_at_the_replica(rig: Rig, server: ModelServer) -> None:
    async def stream(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
        await reader.read()
        raise ConnectionResetError

    server.handler = stream
    rig.serve(server)
    client = await rig.connect()
    client.send(post(extra="X-Request-Id: gone-1\r\n"))
    await client.head()
    client.close()
    await until(lambda: server.closed == 1, "the replica saw the close")
    assert rig.router.find("m").in_flight == 0
    assert rig.gateway.hub.counts.ring.find(b"gone-1").outcome == "client_gone"


async def test_a_held_client_that_leaves_is_forgotten(rig: Rig, server: ModelServer) -> None:
    rig.serve(mode="asleep")
    client = await rig.connect()
    client.send(post())
    endpoint = rig.router.find("m")
    await until(lambda: endpoint.waiting)
    client.close()
    await until(lambda: not endpoint.waiting)
    rig.serve(server)
    assert not server.seen


async def test_deadlines_end_what_hangs(tmp_path, server: ModelServer) -> None:  # type: ignore[no-untyped-def]
    async def hang(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if seen.path == "/half":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart")
        await reader.read()
        raise ConnectionResetError

    server.handler = hang
    async with running_gateway(tmp_path, head_timeout_s=1.0, body_timeout_s=1.0, keepalive_s=1.0) as rig:
        rig.serve(server, first_byte_timeout_s=1.0, queue_timeout_s=1.0)
        silent, slow_head, slow_body = [await rig.connect() for _ in range(3)]
        slow_head.send(b"GET /livez HTTP/1.1\r\n")
        slow_body.send(b'POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 50\r\n\r\n{"model"')
        assert (await rig.ask(post())).status == 504
        half = await rig.connect()
        half.send(get("/endpoints/m/half"))
        assert (await half.head()).status == 200
        assert await half.rest() == b"part"
        assert (await slow_head.answer()).status == 408
        assert (await slow_body.answer()).status == 408
        assert await silent.rest() == b""
        rig.serve(mode="asleep", queue_timeout_s=1.0)
        late = await rig.ask(post())
        assert (late.status, late.error["code"]) == (503, "queue_timeout")
        assert rig.router.find("m").in_flight == 0


async def test_a_replica_that_left_the_table_keeps_its_stream_and_gets_nothing_new(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(reply(b"old"))

    server.handler = wait
    rig.serve(server)
    running = asyncio.ensure_future(rig.ask(post()))
    await until(lambda: server.seen)
    rig.apply(RouteSpec(name="m", mode="serve", targets=(second_server.target("r-new"),)))
    assert (await rig.ask(post())).headers["x-moorage-replica"] == "r-new"
    gate.set()
    assert (await running).body == b"old"
    await until(lambda: server.closed == 1, "its connection is not kept")
