"""A request that comes whole takes a short way through the gateway; its replica, its client and all counts see of it
what they would see if head and body had come one after the other."""

import hashlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import Generation, Limits, RouteSpec, TargetSpec
from moorage.wire.routing import Access, KeyRule, NamespaceRule, RateLimits
from tests.examples import examples
from tests.gateway_on_wires import OK, Request, World

KEYS = {name: f"moor-key.{name}.0123456789abcdef" for name in ("any", "narrow", "limited", "late")}
USAGE = b'{"id":1,"usage":{"prompt_tokens":9,"completion_tokens":5}}'
LONG_WAIT_TURNS = 12


def access() -> Access:
    def rule(name: str, **more: Any) -> KeyRule:
        digest = hashlib.sha256(KEYS[name].encode()).hexdigest()
        return KeyRule(uid=f"u-{name}", name=name, namespace="default", digest=digest, **more)

    rules = (
        rule("any"),
        rule("narrow", endpoints=("m",)),
        rule("limited", limits=RateLimits(requests_per_minute=4, tokens_per_minute=2000, in_flight=2)),
        rule("late", expires_at=1.0),
    )
    namespaces = (
        NamespaceRule(namespace="default", limits=RateLimits(requests_per_minute=12)),
        NamespaceRule(namespace="other", keys="required"),
    )
    return Access(number=1, keys=rules, namespaces=namespaces)


def answer(request: Request) -> list[bytes]:
    """By what the replica got, so that both worlds answer alike."""
    which = hashlib.sha256(request.body).digest()[0] % 4
    if which == 0:
        return [b"HTTP/1.1 500 Bad\r\nContent-Length: 3\r\n\r\n", b"bad"]
    if which == 1:
        return [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(USAGE), USAGE)]
    return [OK]


class House:
    """A gateway with one client; time stands still unless it is moved."""

    def __init__(self) -> None:
        self.world = world = World(answer=answer)
        hub = world.hub
        self.now = hub.tick
        hub.time = hub.counts._time = hub.usage._time = lambda: self.now

        def route(name: str, count: int, *, of: str = "default", model: str | None = None, **more: Any) -> RouteSpec:
            targets = tuple(TargetSpec(f"{name}-{n}", "rev-1", "wire", 1) for n in range(count))
            limits = Limits(max_in_flight=1000, **more)
            return RouteSpec(name=name, mode="serve", targets=targets, namespace=of, model=model, limits=limits)

        routes = [
            route("m", 1),
            route("n", 3, model="org/long-name", affinity="session"),
            route("p", 2, model='quo"ted', affinity="prefix", retry="always"),
            route("o", 1, of="other"),
        ]
        bindings = [BindingSpec("e-both", "both", routes=(("m", 60), ("n", 40))), BindingSpec("e-none", "none")]
        assert hub.apply(Generation("s", 2), routes, bindings)
        hub.keys.configure(access())
        hub.limits.configure(access(), ())
        self.client = world.client()

    def ask(self, *parts: bytes) -> tuple[bytes, list[Request]]:
        """What the client and the replicas got of one request."""
        world = self.world
        if self.client.wire.closing or self.client.wire.ended:
            self.client = world.client()
        for key in ("", *(f"u-{name}" for name in KEYS)):
            world.hub.limits.account("default", key, "")
            world.hub.limits.account("default", key, "e-both")
        for limit in world.hub.limits._limits.values():
            limit.share, limit.known_until = limit.most, float("inf")
        before, arrived = len(self.client.got), len(world.arrived)
        self.client.send(*parts)
        for _ in range(LONG_WAIT_TURNS):
            world.turn()
        return self.client.got[before:], world.arrived[arrived:]

    def counts(self) -> list[object]:
        hub = self.world.hub
        hub.usage.settle()
        return [
            [record.to_wire() for record in hub.counts.ring.records()],
            sorted((who, sums.to_wire().model_dump_json()) for who, sums in hub.usage._today.items()),
            sorted((who, limit.used(self.now)) for who, limit in hub.limits._limits.items()),
            sorted((*names, stats.bytes, stats.statuses) for *names, stats in hub.counts.named()),
        ]


NAMES = ("m", "n", "org/long-name", "default/n", "p", "o", "other/o", "both", "none", "nobody", "mé", "")
LENGTHS = ("Content-Length: %d", "content-length:%d", "Content-Length:  %d \t", "CONTENT-LENGTH: %05d")
SHOWN = (*(f"Authorization: Bearer {KEYS[name]}" for name in KEYS), f"x-api-key: {KEYS['any']}", "Authorization: sk-1")
MORE = (
    "X-Moorage-Session: a",
    "X-Moorage-Session: b",
    "X-Request-Id: same",
    "X-Request-Id: own-7",
    "Content-Type: application/json",
    "Connection: keep-alive, X-Trace",
    "X-Trace: 1",
    "X-Trace: 2",
    "X-Moorage-Revision: rev-9",
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes]:
    pairs = [("model", draw(st.sampled_from(NAMES))), ("prompt", draw(st.sampled_from(("hi", "a" * 400, '\\"model'))))]
    pairs += draw(
        st.lists(st.sampled_from((("max_tokens", 7), ("user", "u"), ("model", "n"), ("x", {"model": "n"}))), max_size=2)
    )
    if draw(st.booleans()):
        pairs = draw(st.permutations(pairs))
    text = ", ".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=draw(st.booleans()))}" for key, value in pairs
    )
    body = ("{" + text + "}").encode() + draw(st.sampled_from((b"", b"", b" \n", b"x")))
    lines = ["Host: h", draw(st.sampled_from(LENGTHS)) % len(body)]
    lines += draw(st.lists(st.sampled_from(SHOWN), max_size=1)) + draw(st.lists(st.sampled_from(MORE), max_size=3))
    if draw(st.booleans()):
        lines = draw(st.permutations(lines))
    first = draw(
        st.sampled_from(("POST /v1/completions HTTP/1.1",) * 4 + ("PUT /v1/x HTTP/1.1", "POST /v1/y?a=b HTTP/1.0"))
    )
    return "\r\n".join((first, *lines, "", "")).encode(), body


@settings(max_examples=examples(120))
@given(st.lists(st.tuples(requests(), st.sampled_from((0.0, 0.3, 61.0))), min_size=1, max_size=10))
def test_a_whole_request_is_answered_and_counted_as_one_in_parts(told: list[tuple[tuple[bytes, bytes], float]]) -> None:
    whole, parted = House(), House()
    for (head, body), later_s in told:
        assert whole.ask(head + body) == parted.ask(head, body)
        assert whole.counts() == parted.counts()
        for house in (whole, parted):
            house.now += later_s
    for house in (whole, parted):
        house.world.close()
        assert not house.world.left_over()
