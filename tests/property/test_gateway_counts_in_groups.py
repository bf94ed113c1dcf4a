"""Requests that are counted together are counted as one after the other would be, whatever is asked in between."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving.binding import BindingSpec, BindingState
from moorage.decide.serving.routes import EndpointState, Generation, RouteSpec, TargetSpec, TargetState
from moorage.gateway.access_log import AccessLog
from moorage.gateway.config import GatewayConfig
from moorage.gateway.counting import Counts
from moorage.gateway.frontend import ClientConnection
from moorage.gateway.heads import RequestHead, RequestLine
from moorage.gateway.hub import Hub
from moorage.gateway.measures import BOUNDS_S
from moorage.gateway.outcomes import Refused
from moorage.gateway.records import Record
from moorage.gateway.tokens import Tokens
from moorage.gateway.usage import UsageCounts
from tests.examples import examples
from tests.gateway_on_wires import QuietLog

RECORDS_MAX = 7
REPLICAS = ("r-0", "r-1")
TOLD = b'{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}'
TIMES = st.sampled_from((0.0, 0.0005, 0.001, 0.02, 0.0201, 0.5, 700.0, 701.0)) | st.floats(0.0, 800.0)


@dataclass
class Request:
    """One that ended."""

    name: str
    """`a` and `b` are deployments, `chat` leads to either; empty: none was found"""
    at: str
    """of a deployment, where `chat` led to it"""
    replica: str | None
    status: int
    outcome: str
    why: str
    id: bytes
    queued_s: float
    first_s: float | None
    total_s: float
    size: int
    tokens: tuple[int, int] | None
    key: str
    retried: int
    address: str
    path: str


requests = st.builds(
    Request,
    name=st.sampled_from(("a", "b", "chat", "chat", "")),
    at=st.sampled_from("ab"),
    replica=st.none() | st.sampled_from(REPLICAS),
    status=st.sampled_from((0, 101, 200, 200, 404, 429, 503)),
    outcome=st.sampled_from(("ok", "ok", "ok", "cut", "client_gone", "refused", "upstream_error")),
    why=st.sampled_from(("queue_full", "unknown_model")),
    id=st.integers(0, 40).map(lambda number: b"id-%d" % number),
    queued_s=st.just(0.0) | TIMES,
    first_s=st.none() | TIMES,
    total_s=TIMES,
    size=st.integers(0, 10**9),
    tokens=st.none() | st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    key=st.sampled_from(("", "", "k-1", "k-2")),
    retried=st.integers(0, 1),
    address=st.sampled_from(("127.0.0.1:1", "127.0.0.1:2")),
    path=st.sampled_from(("/v1/completions", "/100%")),
)
asking = st.sampled_from(("stats", "record", "usage", "sweep", "table"))
histories = st.lists(requests, max_size=6).flatmap(
    lambda few: st.lists(st.sampled_from(few) | requests | asking, max_size=200) if few else st.lists(requests)
)
"""Some requests often, as it is in life, and questions between them."""


@dataclass
class OneByOne:
    """What should be counted."""

    counts: Counter[Any] = field(default_factory=Counter)
    seconds: dict[tuple[Any, ...], float] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    usage: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, one: Request, record: Record, key: str) -> None:
        self.records.append(record)
        self.paths.append(one.path)
        if not one.name:
            self.counts["unrouted"] += 1
            return
        tokens = one.tokens or (0, 0)
        whose = (one.name, record.deployment)
        for what, number in (
            (("status", one.status // 100), 1),
            (("cut",), one.outcome == "cut"),
            (("client_gone",), one.outcome == "client_gone"),
            (("limited",), one.status == 429),
            (("tunnels",), one.status == 101),
            (("waited",), one.replica is not None and (record.queued_s or 0.0) > 0.0),
            (("bytes",), one.size),
            (("retried",), one.retried),
            (("prompt",), tokens[0]),
            (("completion",), tokens[1]),
        ):
            self.counts[(*whose, *what)] += number
        self._spread(whose, record)
        if one.replica is not None:
            self._spread((*whose, one.replica), record)
            self.counts[(*whose, one.replica, "requests")] += 1
            bad = one.status >= 500 or one.outcome in ("cut", "upstream_error")
            self.counts[(*whose, one.replica, "errors")] += bad
        if key:
            self.usage[key, one.name, "requests"] += 1
            self.usage[key, one.name, "prompt_tokens"] += tokens[0]
            self.usage[key, one.name, "completion_tokens"] += tokens[1]
            failed = one.outcome in ("cut", "upstream_error") or (one.outcome == "ok" and one.status >= 500)
            self.usage[key, one.name, "failed"] += failed
            self.usage[key, one.name, "refused"] += one.outcome == "refused"

    def _spread(self, whose: tuple[Any, ...], record: Record) -> None:
        for name, taken_s in (("queued", record.queued_s), ("first", record.first_s), ("total", record.total_s)):
            if taken_s is not None and not (len(whose) == 3 and name == "queued"):
                bucket = next((at for at, bound in enumerate(BOUNDS_S) if taken_s <= bound), len(BOUNDS_S))
                self.counts[(*whose, name, bucket)] += 1
                self.seconds[(*whose, name)] = self.seconds.get((*whose, name), 0.0) + taken_s


def _spec(name: str) -> RouteSpec:
    targets = tuple(TargetSpec(replica=each, revision="1", host=name, port=1) for each in REPLICAS)
    return RouteSpec(name=name, mode="serve", targets=targets)


class Life:
    """A gateway's counts, and what should be in them."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.now = 1_000.0
        self.counts = hub.counts = Counts(lambda: self.now, RECORDS_MAX)
        self.access = AccessLog(
            Path("/nowhere"), bytes_max=1, keep=1, log=QuietLog(), wall=lambda: self.now + 1_800_000_000.0
        )
        self.counts.access = self.access
        self.usage = UsageCounts(lambda: 1_800_000_000.0, lambda: 0.0)
        self.plain = OneByOne()
        self.tables = 0
        self.apply()

    def apply(self) -> None:
        self.tables += 1
        made = BindingSpec("e-1", "chat", routes=(("a", 50), ("b", 50)))
        assert self.hub.apply(Generation("s", self.tables), [_spec("a"), _spec("b")], [made])

    def end(self, one: Request) -> None:
        self.now += 0.3
        client: Any = ClientConnection(self.hub)
        line = RequestLine("GET", one.path, 1, (), False)
        client.head = RequestHead(line, b"", 0, True, False, None, None)
        client.request_id, client.status, client.address = one.id, one.status, one.address
        client.sent_bytes, client.retried = one.size, one.retried
        client.started = self.now - one.total_s
        outcome = Refused(one.outcome, one.why) if one.outcome in ("refused", "upstream_error") else one.outcome
        total_s = self.now - client.started
        if not one.name:
            self.counts.refused(client, outcome)
            told = Record(
                one.id, "", "", self.tables, None, None, None, total_s, one.status, one.size, outcome, None, None, 0
            )
            self.plain.add(one, told, "")
            return
        self._end_at(client, one, outcome)

    def _end_at(self, client: Any, one: Request, outcome: str) -> None:
        endpoint = self.hub.router.find(one.name if one.name != "chat" else one.at)
        assert endpoint is not None
        target = next((t for t in endpoint.targets if t.spec.replica == one.replica), None)
        if one.name == "chat":
            client.binding = self.hub.router.bound("chat")
        started = client.started
        first_at = 0.0 if one.first_s is None else self.now if one.first_s == 0.0 else started + one.first_s
        client.sent_at, client.first_at = started + one.queued_s, first_at
        client.tenant = client.key_name = one.key
        if one.tokens is not None:
            client.front = client.tail = TOLD % one.tokens
        self.counts.ended(client, endpoint, target, outcome, self.now)
        if one.key:
            self.usage.ended(client, endpoint, outcome)
        record = Record(
            request_id=one.id,
            endpoint=one.name,
            deployment=endpoint.route.name,
            generation=self.tables,
            target=None if target is None else target.spec,
            queued_s=(self.now if target is None else client.sent_at) - started,
            first_s=first_at - started if first_at else None,
            total_s=self.now - started,
            status=one.status,
            bytes=one.size,
            outcome=outcome,
            tokens=None if one.tokens is None else Tokens(*one.tokens),
            key=one.key or None,
            retried=one.retried,
        )
        self.plain.add(one, record, one.key)

    def ask(self, what: str) -> None:
        if what == "stats":
            assert self.counted() == +self.plain.counts
        elif what == "record" and self.plain.records:
            self.look_up(self.plain.records[-1].request_id)
        elif what == "usage":
            assert self.used() == +self.plain.usage
        elif what == "sweep":
            self.counts.settle()
        else:
            self.apply()

    # --- what must hold ------------------------------------------------------------------------------------------

    def look_up(self, request_id: bytes) -> None:
        kept = self.plain.records[-RECORDS_MAX:]
        newest = next((record for record in reversed(kept) if record.request_id == request_id), None)
        assert self.counts.find(request_id, [], None) == newest

    def counted(self) -> Counter[Any]:
        found: Counter[Any] = Counter(unrouted=self.counts.unrouted)
        for _, name, deployment, stats in self.counts.named():
            whose = (name, deployment)
            for each in ("cut", "client_gone", "limited", "tunnels", "waited", "bytes", "retried"):
                found[*whose, each] += getattr(stats, each)
            found[*whose, "prompt"] += stats.prompt_tokens
            found[*whose, "completion"] += stats.completion_tokens
            found += Counter({(*whose, "status", kind): number for kind, number in enumerate(stats.statuses)})
            for each in ("queued", "first", "total"):
                found += Counter({(*whose, each, at): number for at, number in enumerate(getattr(stats, each))})
            for target, replica in stats.replicas.items():
                own = (*whose, target.spec.replica)
                found[*own, "requests"] += replica.requests
                found[*own, "errors"] += replica.errors
                for each in ("first", "total"):
                    found += Counter({(*own, each, at): number for at, number in enumerate(getattr(replica, each))})
        return +found

    def used(self) -> Counter[tuple[str, str, str]]:
        left = self.usage.left("g", "i")
        whats = ("requests", "prompt_tokens", "completion_tokens", "failed", "refused")
        return +Counter({(each.key, each.endpoint, what): getattr(each, what) for each in left for what in whats})

    def all_holds(self) -> None:
        assert self.counted() == +self.plain.counts
        assert self.used() == +self.plain.usage
        assert self.counts.ring.records() == self.plain.records[-RECORDS_MAX:]
        for each in range(41):
            self.look_up(b"id-%d" % each)
        seconds: dict[tuple[Any, ...], float] = {}
        for _, name, deployment, stats in self.counts.named():
            for what in ("queued", "first", "total"):
                seconds[name, deployment, what] = getattr(stats, f"{what}_s")
            for target, replica in stats.replicas.items():
                for what in ("first", "total"):
                    seconds[name, deployment, target.spec.replica, what] = getattr(replica, f"{what}_s")
        assert {name: each for name, each in seconds.items() if each} == pytest.approx(
            {name: each for name, each in self.plain.seconds.items() if each}
        )
        self.lines_hold()

    def lines_hold(self) -> None:
        lines = [json.loads(line) for _, text in self.access._waiting for line in text.splitlines()]
        told = [(line["id"], line["path"], line["bytes"], line["outcome"], line.get("key")) for line in lines]
        assert told == [
            (record.request_id.decode(), path, record.bytes, record.outcome, record.key)
            for record, path in zip(self.plain.records, self.plain.paths, strict=True)
        ]
        assert all(before["time"] <= after["time"] for before, after in pairwise(lines))


@contextmanager
def lives() -> Iterator[Life]:
    loop = asyncio.new_event_loop()
    config = GatewayConfig(server_url="http://c", token="tok", gateway_id="g", state_dir=Path("/nowhere"))
    try:
        yield Life(Hub(config, loop, seed=1, id_prefix="req-1", log=QuietLog()))
    finally:
        loop.close()


@given(history=histories)
@settings(max_examples=examples(100), deadline=None)
def test_what_is_counted_together_is_what_each_would_have_counted(history: list[Request | str]) -> None:
    with lives() as life:
        for each in history:
            if isinstance(each, Request):
                life.end(each)
            else:
                life.ask(each)
        life.all_holds()


def test_what_is_kept_of_requests_holds_on_to_no_answer_and_to_nothing_of_a_table() -> None:
    one = Request("chat", "a", "r-0", 200, "ok", "", b"i", 0.0, 0.0, 0.5, 9, (1, 2), "", 0, "127.0.0.1:1", "/x")
    with lives() as life:
        for _ in range(70):
            life.end(one)
        held = reachable(life.counts.ring)
        assert not [each for each in held if isinstance(each, EndpointState | BindingState | TargetState)]
        assert not [each for each in held if isinstance(each, bytes) and each.startswith(b"{")]
        assert sum(isinstance(each, Tokens) for each in held) <= 64 + RECORDS_MAX


def reachable(what: object) -> list[object]:
    """All objects of data that it leads to."""
    seen: dict[int, object] = {}
    waiting = [what]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not isinstance(each, type):
            seen[id(each)] = each
            waiting += gc.get_referents(each)
    return list(seen.values())
