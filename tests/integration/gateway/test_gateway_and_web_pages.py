"""A page of another site cannot use the gateway of the machine its reader sits at; programs notice nothing of that."""

import contextlib
import json
import resource
from pathlib import Path

import pytest
from gateway_rig import Answer, ModelServer, Rig, running_gateway

from moorage.gateway.worker import raise_file_limit

BODY = b'{"model": "m"}'


def ask_of(host: str, *origins: str, trace: str = "1") -> bytes:
    lines = [f"Host: {host}", *(f"Origin: {origin}" for origin in origins), f"X-Trace: {trace}"]
    lines += ["Content-Type: text/plain", f"Content-Length: {len(BODY)}"]
    return "\r\n".join(["POST /v1/chat/completions HTTP/1.1", *lines, "", ""]).encode() + BODY


async def asked(tmp_path: Path, request: bytes, **settings: object) -> tuple[Answer, list[str | None]]:
    server = await ModelServer().start()
    async with running_gateway(tmp_path, **{"allowed_hosts": (), **settings}) as rig:
        rig.serve(server)
        answer = await rig.ask(request)
    await server.stop()
    return answer, [seen.headers.get("origin") for seen in server.seen]


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://evil.example:7421", "null", "http://127.0.0.1@evil.example", "file://", "x", ""],
)
async def test_a_page_of_another_site_is_refused_and_no_model_server_sees_it(tmp_path: Path, origin: str) -> None:
    answer, seen = await asked(tmp_path, ask_of("127.0.0.1:7421", origin))
    assert (answer.status, answer.error["code"], seen) == (403, "origin_not_allowed", [])
    assert set(answer.error) == {"message", "type", "param", "code"}


async def test_one_foreign_origin_among_several_is_enough_to_refuse(tmp_path: Path) -> None:
    answer, _ = await asked(tmp_path, ask_of("127.0.0.1", "http://localhost", "http://evil.example"))
    assert answer.status == 403


@pytest.mark.parametrize(
    ("host", "origin", "settings"),
    [
        ("127.0.0.1:7421", "http://localhost:3000", {}),
        ("127.0.0.1:7421", "http://127.0.0.1", {}),
        ("[::1]:7421", "http://[::1]:9", {}),
        ("10.0.0.9:7421", "http://10.0.0.9:7421", {}),
        ("localhost", "https://chat.example", {"allowed_origins": ("https://chat.example",)}),
        ("localhost", "https://chat.example:8443", {"allowed_origins": ("chat.example",)}),
        ("localhost", "null", {"allowed_origins": ("*",)}),
        ("gw.example", "http://gw.example:81", {"allowed_hosts": ("gw.example",)}),
        ("gw.example", "http://gw.example", {"host": "0.0.0.0"}),
    ],
)
async def test_a_page_of_this_machine_of_the_gateway_or_of_the_list_may_ask_and_its_lines_go_on(
    tmp_path: Path, host: str, origin: str, settings: dict[str, object]
) -> None:
    answer, seen = await asked(tmp_path, ask_of(host, origin), **settings)
    assert (answer.status, seen) == (200, [origin])


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7421", "localhost.evil.example", "127.0.0.1@evil", "a b"]
)
async def test_a_name_pointed_at_a_gateway_of_one_machine_is_not_answered(tmp_path: Path, host: str) -> None:
    answer, seen = await asked(tmp_path, ask_of(host))
    assert (answer.status, answer.error["code"], seen) == (421, "host_not_allowed", [])


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("127.0.0.1:7421", {}),
        ("localhost", {}),
        ("LOCALHOST:80", {}),
        ("[::1]", {}),
        ("192.168.1.2", {}),
        ("gw.example", {"allowed_hosts": ("gw.example",)}),
        ("gw.example", {"allowed_hosts": ("*",)}),
        ("gw.example:7421", {"advertise": "http://gw.example:7421"}),
        ("gw.example", {"host": "0.0.0.0"}),
    ],
)
async def test_a_program_is_answered_by_address_localhost_or_a_name_of_the_gateway(
    tmp_path: Path, host: str, settings: dict[str, object]
) -> None:
    answer, _ = await asked(tmp_path, ask_of(host), **settings)
    assert answer.status == 200


async def test_a_listed_name_is_the_only_one_also_where_the_gateway_listens_widely(tmp_path: Path) -> None:
    answer, _ = await asked(tmp_path, ask_of("evil.example"), host="0.0.0.0", allowed_hosts=("gw.example",))
    assert answer.status == 421


async def test_no_memory_of_heads_lets_a_page_in_behind_programs(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    good = [ask_of("g", "http://localhost", trace=str(i)) for i in range(4)]
    bad = [ask_of("g", "http://evil.example", trace=str(i)) for i in range(2)]
    statuses = [(await rig.ask(request)).status for request in [*good, bad[0], good[0], bad[1], *good, bad[0]]]
    assert statuses == [200] * 4 + [403, 200, 403] + [200] * 4 + [403]
    hosts = [ask_of(host, trace=str(i)) for i, host in enumerate(["g", "g", "evil.example", "g", "evil.example"])]
    assert [(await rig.ask(request)).status for request in hosts] == [200, 200, 421, 200, 421]


async def test_own_paths_are_kept_from_pages_as_well(rig: Rig) -> None:
    answer = await rig.ask(b"GET /v1/models HTTP/1.1\r\nHost: g\r\nOrigin: http://evil.example\r\n\r\n")
    assert answer.status == 403
    assert json.loads(answer.body)["error"]["code"] == "origin_not_allowed"


@contextlib.contextmanager
def file_limit(soft: int):  # type: ignore[no-untyped-def]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, before[1]), before[1]))
    try:
        yield before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_gateway_may_open_as_many_files_as_its_hard_limit_lets_it() -> None:
    with file_limit(512) as hard:
        assert raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
