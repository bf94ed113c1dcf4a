"""Broken conversations through a gateway: what is drawn, how it is broken, and what must hold whatever was drawn.

Each round draws requests and answers that are well formed, breaks some of their bytes, cuts both at any places and
plays them over wires (`gateway_on_wires`). Used by the bounded test and by `make fuzz-gateway`, which goes on for as
long as it is told to. The same seed plays the same conversation.

What must hold: no exception anywhere; what reaches a replica is read by h11 as whole requests, one after the other, or
is a beginning of one whose client was cut off; each is one that a strict parser reads in the client's bytes too; bodies
of what was not broken arrive as they were sent, both ways; and when all are gone nothing is left in flight.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from moorage.decide.serving.routes import Limits
from tests.gateway_on_wires import Client, Request, World, answers, read_strictly

WORDS = (b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b";", b"0", b"0\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1", b"GET ")
LINES = (
    b"Content-Length: 3",
    b"Transfer-Encoding: chunked",
    b"Connection: close",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Expect: 100-continue",
    b"Host: other",
    b" folded: 1",
    b"X-Request-Id: mine",
    b"X-Moorage-Revision: 7",
    b"Accept-Encoding: gzip",
)


@dataclass
class Drawn:
    """One conversation.

    `broken`: whether anything was broken, so that less can be said of its end.
    """

    seed: int
    requests: list[bytes]
    bodies: list[bytes]
    answers: list[bytes]
    contents: list[bytes]
    broken: bool


def drawn(seed: int) -> Drawn:
    """The conversation of this seed."""
    draw = random.Random(seed)
    broken = draw.random() < 0.7
    pairs = [_request(draw) for _ in range(draw.randint(1, 4))]
    replies = [_answer(draw) for _ in range(8)]
    requests = [raw for raw, _ in pairs]
    sent = [raw for raw, _ in replies]
    if broken:
        requests = [_break(draw, raw) if draw.random() < 0.6 else raw for raw in requests]
        sent = [_break(draw, raw) if draw.random() < 0.4 else raw for raw in sent]
    return Drawn(seed, requests, [b for _, b in pairs], sent, [b for _, b in replies], broken)


def play(conversation: Drawn) -> list[str]:
    """Play it; what does not hold, in words."""
    draw = random.Random(conversation.seed + 1)
    told = iter(conversation.answers * 4)

    def answer(request: Request) -> list[bytes]:
        raw = next(told)
        ends = [b""] if conversation.broken and draw.random() < 0.3 else []
        return [*_cut(draw, raw), *ends]

    world = World(answer, limits=Limits(max_in_flight=draw.choice((1, 2, 50))))
    wrong: list[str] = []
    try:
        client = world.client()
        _speak(draw, world, client, b"".join(conversation.requests), conversation.broken)
        if not conversation.broken:
            wrong += _whole(world, client, conversation)
        world.close()
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    wrong += world.left_over()
    arrived = [(request.method, request.body) for request in world.arrived]
    strict = read_strictly(b"".join(conversation.requests))
    left = iter(strict)  # some of them the gateway answered itself
    if not all(request in left for request in arrived):
        wrong.append(f"arrived: {_shown(arrived)}, a strict parser reads {_shown(strict)}")
    return wrong + _counted(world)


def _shown(requests: list[tuple[str, bytes]]) -> str:
    return ", ".join(f"{method} {body[:80]!r} of {len(body)}" for method, body in requests) or "nothing"


def _counted(world: World) -> list[str]:
    """Each request was counted once: as its endpoint's or as nobody's, and at a replica if one had it."""
    counts, [endpoint] = world.hub.counts, list(world.hub.router.endpoints())
    records = counts.ring.records()
    by_status = sum(sum(stats.statuses) for stats in counts.stats.values())
    found = []
    if len(records) != by_status + counts.unrouted:
        found.append(f"{len(records)} records of {by_status} + {counts.unrouted} requests")
    at_replicas = sum(record.target is not None for record in records)
    if not len(world.arrived) <= at_replicas == endpoint.completed:
        found.append(f"{len(world.arrived)} arrived, {at_replicas} recorded, {endpoint.completed} completed")
    return found


def _speak(draw: random.Random, world: World, client: Client, raw: bytes, broken: bool) -> None:
    for part in _cut(draw, raw):
        client.send(part)
        if broken and draw.random() < 0.02 and world.replicas:
            draw.choice(world.replicas).wire.cut(draw.choice((None, ConnectionResetError())))
    for _ in range(60):
        world.turn()
    if broken:
        draw.choice((client.wire.end, client.wire.cut, lambda: None))()
        world.turn()
        if draw.random() < 0.2:
            for connection in list(world.hub.clients):
                connection.expire(world.hub.time())


def _whole(world: World, client: Client, conversation: Drawn) -> Iterator[str]:
    """Nothing was broken: every body arrived as it was sent, in both directions."""
    bodies = [request.body for request in world.arrived]
    if bodies != conversation.bodies:
        yield f"bodies of {[len(body) for body in bodies]} bytes, sent {[len(body) for body in conversation.bodies]}"
    contents = [body for status, body in answers(client.got) if status == 200]
    meant = conversation.contents[: len(bodies)]
    if contents != meant:
        yield f"answers of {[len(body) for body in contents]} bytes, sent {[len(body) for body in meant]}"


# --- drawing -----------------------------------------------------------------------------------------------------


def _bytes(draw: random.Random, size: int) -> bytes:
    kind = draw.random()
    if kind < 0.4:
        return bytes(draw.choices(b"abc{}\"'\\: \r\n0123", k=size))
    if kind < 0.6:
        return (b"0\r\n\r\nGET /endpoints/m/x HTTP/1.1\r\nHost: h\r\n\r\n" * (size // 40 + 1))[:size]
    return draw.randbytes(size)


def _size(draw: random.Random) -> int:
    return draw.choice((0, 1, 2, 17, 300, 5000, draw.randint(0, 70_000)))


def _framed(draw: random.Random, body: bytes) -> tuple[bytes, bytes]:
    """A line that says how long the body is, and the body as it is written then."""
    if draw.random() < 0.5:
        return b"Content-Length: %d\r\n" % len(body), body
    parts = [part for part in _cut(draw, body) if part]
    ext = draw.choice((b"", b"", b";a=b", b';q="x;y"'))
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(part), ext, part) for part in parts)
    trailer = draw.choice((b"", b"", b"X-T: 1\r\n"))
    return b"Transfer-Encoding: chunked\r\n", chunks + b"0\r\n" + trailer + b"\r\n"


def _request(draw: random.Random) -> tuple[bytes, bytes]:
    if draw.random() < 0.4:
        line, body = b"POST /v1/chat/completions HTTP/1.1", b'{"model": "m", "x": "%b"}' % (b"y" * _size(draw))
    else:
        line, body = b"POST /endpoints/m/a?b=c HTTP/1.1", _bytes(draw, _size(draw))
    length, written = _framed(draw, body)
    extra = b"".join(b"X-%d: %d\r\n" % (n, draw.randint(0, 10**6)) for n in range(draw.randint(0, 3)))
    return b"%b\r\nHost: h\r\n%b%b\r\n%b" % (line, extra, length, written), body


def _answer(draw: random.Random) -> tuple[bytes, bytes]:
    stream = draw.random() < 0.3
    if stream:
        events = [b'data: {"choices": [{"delta": {"content": "w%d"}}]}\n\n' % n for n in range(draw.randint(0, 60))]
        body = b"".join(events) + b"data: [DONE]\n\n"
    else:
        body = _bytes(draw, _size(draw))
    length, written = _framed(draw, body)
    kind = b"text/event-stream" if stream else b"application/json"
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" if draw.random() < 0.1 else b""
    return b"%bHTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n%b" % (interim, kind, length, written), body


def _cut(draw: random.Random, data: bytes) -> list[bytes]:
    """The same bytes in parts; now and then the first ones byte by byte."""
    if draw.random() < 0.1:
        head, rest = data[:200], data[200:]
        return [*(head[at : at + 1] for at in range(len(head))), rest]
    places = sorted({0, len(data), *(draw.randrange(len(data) + 1) for _ in range(draw.randint(0, 6)))})
    return [data[start:end] for start, end in pairwise(places)]


def _break(draw: random.Random, raw: bytes) -> bytes:
    """Some bytes changed, left out, doubled or put in; more often in the head, where they mean something."""
    for _ in range(draw.choice((1, 1, 2, 5))):
        end = raw.find(b"\r\n\r\n") + 4 if draw.random() < 0.7 else len(raw)
        at = draw.randrange(max(1, min(end, len(raw)) + 1))
        kind = draw.randrange(6)
        if kind == 0:
            raw = raw[:at] + draw.choice(WORDS) + raw[at:]
        elif kind == 1:
            raw = raw[:at] + raw[at + draw.randint(1, 4) :]
        elif kind == 2:
            raw = raw[:at] + bytes((draw.randrange(256),)) + raw[at + 1 :]
        elif kind == 3:
            line_end = raw.find(b"\r\n") + 2
            raw = raw[:line_end] + draw.choice(LINES) + b"\r\n" + raw[line_end:]
        elif kind == 4:
            raw = raw[:at]
        else:
            raw = raw[:at] + raw[max(0, at - draw.randint(1, 30)) :]
    return raw
