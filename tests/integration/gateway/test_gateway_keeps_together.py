"""Requests that belong together go to one replica, whichever way they say so; others spread."""

import pytest
from gateway_rig import ModelServer, Rig, get, post

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
    rig.serve(server, second_server, affinity="session")
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
    rig.serve(server, second_server, affinity="session")
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
