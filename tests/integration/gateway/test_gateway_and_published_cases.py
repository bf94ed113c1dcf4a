"""Cases that other projects published for their parsers: the gateway takes none of them in another way than h11 does.

What a client sends reaches the replica as a prefix of what h11, strict and not ours, reads in the same bytes: never
more, never other bodies. What a replica answers is whole for the client only if it is for h11. Each case is given in
one piece and byte by byte.
"""

import re
from collections.abc import Callable

import h11
import pytest

from tests import published_cases
from tests.gateway_on_wires import World, answers, read_strictly
from tests.published_cases import Case

PROJECTS = {"h11": published_cases.h11, "gunicorn": published_cases.gunicorn, "llhttp": published_cases.llhttp}
FIRST = re.compile(rb"((?:\r\n)*[!-~]+ )(/[^ ]*)( HTTP/1\.[01])\r\n")


def addressed(raw: bytes) -> bytes:
    """The case at an endpoint of ours, and with a Host, which many leave out."""
    found = FIRST.match(raw)
    if found is None:
        return raw
    host = b"" if re.search(rb"(?i)\nhost", raw) else b"Host: h\r\n"
    return found[1] + b"/endpoints/m" + found[2] + found[3] + b"\r\n" + host + raw[found.end() :]


def steps(raw: bytes) -> list[list[bytes]]:
    return [[raw], [raw[at : at + 1] for at in range(len(raw))]]


@pytest.mark.parametrize("project", PROJECTS)
def test_requests_arrive_as_a_strict_parser_reads_them_or_not_at_all(project: str) -> None:
    cases = [case for case in PROJECTS[project]() if case.of_client]
    wrong, passed = [], 0
    for case in cases:
        raw = addressed(case.raw)
        strict = read_strictly(raw)
        for parts in steps(raw):
            world = World()
            client = world.client()
            client.send(*parts)
            arrived = [(request.method, request.body) for request in world.arrived]
            client.wire.end()
            world.close()
            passed += bool(arrived)
            if arrived != strict[: len(arrived)] or world.left_over():
                wrong.append((case.name, case.good, raw, arrived, strict, world.left_over()))
    assert not wrong, "\n".join(map(repr, wrong))
    assert passed >= len(cases) // 5, "so many of them are good"


@pytest.mark.parametrize("project", ["h11", "llhttp"])
def test_answers_are_whole_only_if_a_strict_parser_reads_them_whole(project: str) -> None:
    cases = [case for case in PROJECTS[project]() if not case.of_client]
    wrong, passed = [], 0
    for case in cases:
        strict = whole_answer(case)
        for parts in steps(case.raw):
            world = World(sends([*parts, b""]))
            client = world.client()
            client.send(b"GET /endpoints/m/x HTTP/1.1\r\nHost: h\r\n\r\n")
            for _ in range(len(parts) // 5 + 1):
                world.turn()
            got = answers(client.got, ended=client.wire.closing and not client.wire.aborted)
            world.close()
            passed += bool(got) and got[0] == strict
            if (got and got[0][0] != 502 and got[0] != strict) or len(got) > 1 or world.left_over():
                wrong.append((case.name, case.good, case.raw, got, strict, world.left_over()))
    assert not wrong, "\n".join(map(repr, wrong))
    assert passed >= len(cases) // 5, "so many of them are good"


def sends(parts: list[bytes]) -> Callable[[object], list[bytes]]:
    return lambda request: parts


def whole_answer(case: Case) -> tuple[int, bytes] | None:
    """The first answer in these bytes, after which the connection ends, if it is whole for h11."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    reader.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        reader.receive_data(case.raw)
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif event is h11.NEED_DATA:
                reader.receive_data(b"")
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return None
    return status, body
