"""A way that is known leads nowhere that its rules or the table have closed since, and is none for other requests."""

import hashlib
import json
from collections.abc import Iterator

import pytest

from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import Generation, Limits, RouteSpec, TargetSpec
from moorage.gateway import ways
from moorage.wire.routing import Access, KeyRule, NamespaceRule
from tests.gateway_on_wires import Client, World

TEXT = "moor-key.k1.0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()
    assert not made.left_over()


def access(*endpoints: str, text: str = TEXT, **more: object) -> Access:
    digest = hashlib.sha256(text.encode()).hexdigest()
    rule = KeyRule(uid="k1", name="ci", namespace="default", digest=digest, endpoints=endpoints, **more)  # type: ignore[arg-type]
    return Access(number=1, keys=(rule,), namespaces=(NamespaceRule(namespace="default", keys="required"),))


def route(name: str, **more: object) -> RouteSpec:
    target = TargetSpec(replica=f"r-{name}", revision="rev-1", host="wire", port=1)
    return RouteSpec(name=name, mode="serve", targets=(target,), limits=Limits(max_in_flight=1000), **more)  # type: ignore[arg-type]


def ask(client: Client, model: str = "m", text: str | None = TEXT, extra: str = "") -> int:
    """The status of one request."""
    body = json.dumps({"model": model, "messages": []})
    shown = "" if text is None else f"Authorization: Bearer {text}\r\n"
    head = f"POST /v1/completions HTTP/1.1\r\nHost: h\r\n{shown}{extra}Content-Length: {len(body)}\r\n\r\n"
    before = len(client.statuses)
    client.send(f"{head}{body}".encode())
    (status,) = client.statuses[before:]
    return status


def last_replica(client: Client) -> bytes:
    """Which one gave the last answer."""
    return client.got.rpartition(b"X-Moorage-Replica: ")[2].partition(b"\r\n")[0]


def test_a_key_that_is_revoked_opens_nothing_by_the_way_that_it_went(world: World) -> None:
    client = world.client()
    world.hub.keys.configure(access())
    assert [ask(client), ask(client)] == [200, 200]
    assert len(world.hub.ways.known) == 1
    world.hub.keys.configure(access(text="moor-key.k2.another"))
    assert ask(client) == 401
    world.hub.keys.configure(access("other"))
    assert ask(client) == 403
    assert len(world.arrived) == 2


def test_a_key_opens_nothing_once_its_time_is_over(world: World) -> None:
    now = 1000.0
    world.hub.keys._clock = lambda: now
    client = world.client()
    world.hub.keys.configure(access(expires_at=1010.0))
    assert [ask(client), ask(client)] == [200, 200]
    now = 1010.0
    assert [ask(client), ask(client)] == [401, 401]
    now = 1009.0
    assert ask(client) == 200


def test_a_key_that_nobody_shows_is_not_lent_by_another_request(world: World) -> None:
    client = world.client()
    world.hub.keys.configure(access())
    assert [ask(client), ask(client, text=None), ask(client, text="moor-key.k1.wrong"), ask(client)] == [
        200,
        401,
        401,
        200,
    ]


def test_a_key_of_one_endpoint_does_not_open_another_by_its_way(world: World) -> None:
    world.hub.apply(Generation("s", 2), [route("m"), route("n")])
    world.hub.keys.configure(access("m"))
    client = world.client()
    assert [ask(client, "m"), ask(client, "n"), ask(client, "m"), ask(client, "n")] == [200, 403, 200, 403]


def test_a_name_leads_where_the_newest_table_says(world: World) -> None:
    client = world.client()
    assert ask(client, text=None) == 200
    world.hub.apply(Generation("s", 2), [route("other", aliases=("m",))])
    assert ask(client, text=None) == 200
    assert last_replica(client) == b"r-other"
    world.hub.apply(Generation("s", 3), [route("other")])
    assert ask(client, text=None) == 404
    world.hub.apply(Generation("s", 4), [route("other")], bindings=[BindingSpec("e-1", "m", routes=(("other", 1),))])
    assert ask(client, text=None) == 200
    world.hub.apply(Generation("s", 5), [route("other")], bindings=[BindingSpec("e-1", "m", routes=(("gone", 1),))])
    assert ask(client, text=None) == 503


def test_ways_to_nowhere_are_not_kept_and_others_not_without_end(world: World) -> None:
    client = world.client()
    for number in range(5):
        assert ask(client, f"nobody-{number}", text=None) == 404
    known = world.hub.ways.known
    assert not known
    assert ask(client, text=None) == 200
    (way,) = known.values()
    known.update({(b"", f"m{number}"): way for number in range(ways.KNOWN_MAX)})
    world.hub.apply(Generation("s", 2), [route("m", aliases=("a", "b"))])
    assert not known
    known.update({(b"", f"m{number}"): way for number in range(ways.KNOWN_MAX - 1)})
    assert ask(client, "a", text=None) == 200
    assert len(known) == ways.KNOWN_MAX
    assert ask(client, "b", text=None) == 200
    assert len(known) == 1


def test_what_says_more_than_a_key_goes_the_long_way(world: World) -> None:
    world.hub.apply(Generation("s", 2), [route("m"), route("n")])
    world.hub.keys.configure(access())
    client = world.client()
    assert ask(client) == 200
    assert ask(client, extra="X-Moorage-Endpoint: n\r\n") == 200
    assert last_replica(client) == b"r-n"


def test_a_small_body_limit_holds_for_the_usual_request_too() -> None:
    world = World(settings={"body_bytes_max": 64})
    client = world.client()
    assert ask(client, text=None) == 200
    body = json.dumps({"model": "m", "prompt": "x" * 64})
    client.send(f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    assert client.statuses == [200, 413]
    assert len(world.arrived) == 1
    world.close()
