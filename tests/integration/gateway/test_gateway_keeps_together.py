"""Requests that belong together go to one replica, whichever way they say so; others spread."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from gateway_process import gateway_process, keep_table
from gateway_rig import DEADLINE_S, Client, ModelServer, Rig, Seen, get, post, until

from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import Generation, RouteSpec

LONG = "You are a helpful assistant. " * 60


def by_header(n: int) -> bytes:
    return post("m", n=n, user="the same for all", extra=f"X-Moorage-Session: s-{n}\r\n")


def by_user(n: int) -> bytes:
    return post("m", messages=[{"user": "no"}], user=f"u-{n}")


def by_cache_key(n: int) -> bytes:
    return post("m", user="the same for all", prompt_cache_key=f"k-{n}")


def by_path(n: int) -> bytes:
    return post("m", path="/endpoints/m/v1/chat/completions", user=f"u-{n}")


@pytest.mark.parametrize("request_of", [by_header, by_user, by_cache_key, by_path])
async def test_a_session_stays_at_its_replica(
    rig: Rig, server: ModelServer, second_server: ModelServer, request_of
) -> None:  # type: ignore[no-untyped-def]
    rig.serve(server, second_server, affinity="session", connect_timeout_s=DEADLINE_S)
    homes: dict[int, set[str]] = {}
    for _ in range(3):
        for n in range(12):
            answer = await rig.ask(request_of(n))
            homes.setdefault(n, set()).add(answer.headers["x-moorage-replica"])
    assert all(len(replicas) == 1 for replicas in homes.values())
    assert set.union(*homes.values()) == {"r-0", "r-1"}


async def test_prompts_with_one_beginning_go_to_one_replica(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    rig.serve(server, second_server, affinity="prefix")
    homes: dict[int, set[str]] = {}
    for turn in range(3):
        for n in range(12):
            history = [{"role": "user", "content": f"turn {turn}"}]
            body = {"messages": [{"role": "system", "content": f"{n} {LONG}"}, *history]}
            answer = await rig.ask(post("m", temperature=turn, **body))
            homes.setdefault(n, set()).add(answer.headers["x-moorage-replica"])
    assert all(len(replicas) == 1 for replicas in homes.values())
    assert set.union(*homes.values()) == {"r-0", "r-1"}


@pytest.mark.parametrize("cut", [0, 30])
async def test_a_body_that_comes_after_its_head_tells_its_session_too(
    rig: Rig, server: ModelServer, second_server: ModelServer, cut: int
) -> None:
    rig.serve(server, second_server, affinity="session", connect_timeout_s=DEADLINE_S)
    homes: dict[int, set[str]] = {}
    for _ in range(2):
        for n in range(8):
            head, _, body = by_path(n).partition(b"\r\n\r\n")
            client = await rig.connect()
            client.send(head + b"\r\n\r\n" + body[:cut])
            await client.writer.drain()
            client.send(body[cut:])
            homes.setdefault(n, set()).add((await client.answer()).headers["x-moorage-replica"])
            client.close()
    assert all(len(replicas) == 1 for replicas in homes.values())


async def test_an_endpoint_that_people_made_is_named_in_every_way(
    rig: Rig, server: ModelServer, second_server: ModelServer
) -> None:
    routes = [
        RouteSpec(name="a", mode="serve", targets=(server.target("a"),), model="org/a"),
        RouteSpec(name="b", mode="serve", targets=(second_server.target("b"),), model="org/b"),
    ]
    binding = BindingSpec("e-1", "chat", routes=(("a", 50), ("b", 50)))
    rig.gateway.hub.apply(Generation("store-1", 1), routes, [binding])
    for request in (
        post("chat"),
        post("default/chat"),
        get("/v1/x?model=chat"),
        get("/endpoints/chat/v1/x"),
        get("/v1/x", "X-Moorage-Endpoint: chat\r\n"),
    ):
        homes = [(await rig.ask(request)).headers["x-moorage-replica"] for _ in range(4)]
        assert sorted(homes) == ["a", "a", "b", "b"]
    assert [b'"org/a"' in seen.body for seen in server.seen[:4]] == [True] * 4
    assert [seen.path for seen in second_server.seen[4:6]] == ["/v1/x?model=org/b"] * 2
    empty = BindingSpec("e-1", "chat", routes=(("gone", 50),))
    rig.gateway.hub.apply(Generation("store-1", 2), routes, [empty])
    assert (await rig.ask(post("chat"))).status >= 400


async def homes_at(connect: Callable[[], Awaitable[Client]], sessions: int) -> dict[int, str]:
    """Where the requests of each session go."""
    found = {}
    for n in range(sessions):
        client = await connect()
        client.send(post("m", user=f"u-{n}"))
        answer = await client.answer()
        assert answer.status == 200
        found[n] = answer.headers["x-moorage-replica"]
        client.close()
    return found


async def test_sessions_stay_where_they_are_over_gateways_processes_and_the_loss_of_a_replica(tmp_path: Path) -> None:
    servers = [await ModelServer().start() for _ in range(4)]
    sessions = 40
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        home.mkdir()
        keep_table(home, *servers, affinity="session", connect_timeout_s=DEADLINE_S)
    async with gateway_process(one, processes=2) as gateway:
        before = await homes_at(gateway.connect, sessions)
        assert set(before.values()) == {"r0", "r1", "r2", "r3"}
        port = servers[3].port
        await servers[3].stop()
        after = await homes_at(gateway.connect, sessions)
        assert {n for n in before if after[n] != before[n]} == {n for n in before if before[n] == "r3"}
        servers[3] = await ModelServer().start(port)
    async with gateway_process(two) as gateway:  # begun anew, with a replica that is back
        assert await homes_at(gateway.connect, sessions) == before
    for server in servers:
        await server.stop()


async def test_a_busy_session_goes_over_to_others_at_a_quarter_above_the_mean(rig: Rig) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    servers = [await ModelServer(wait).start() for _ in range(4)]
    rig.serve(*servers, affinity="session", max_in_flight=100)
    clients = [await rig.connect() for _ in range(32)]
    for sent, client in enumerate(clients, 1):
        client.send(post("m", user="the one"))
        await until(lambda sent=sent: sum(len(server.seen) for server in servers) == sent)
        most = max(len(server.seen) for server in servers)
        assert most <= -(-5 * sent // (4 * len(servers))), "a quarter above the mean, rounded up"
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200
        client.close()
    for server in servers:
        await server.stop()
