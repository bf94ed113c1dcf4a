"""The access log has one line a request, without secrets, and costs no request whatever the disk does."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_rig import ModelServer, QuietLog, Rig, get, post, running_gateway, until

from moorage.gateway.access_lines import address_of
from moorage.gateway.access_log import AccessLog
from moorage.gateway.config import GatewayConfig
from moorage.gateway.heads import RequestLine
from moorage.gateway.records import Record
from tests.ended import batch_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "access.log"


@pytest.fixture
async def logging(tmp_path: Path, path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path, access_log=path) as rig:
        yield rig


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def record(number: int) -> Record:
    return Record(b"id-%d" % number, "m", "m", 1, None, 0.0, 0.1, 0.2, 200, 5, "ok", None, None, 0)


def access_log(path: Path, **settings: Any) -> AccessLog:
    values = {"bytes_max": 1 << 20, "keep": 2, "log": QuietLog(), "wall": lambda: 1_800_000_000.5, **settings}
    return AccessLog(path, **values)


def add(log: AccessLog, number: int, peer: Any = None) -> None:
    if log.takes(1):
        asked = (address_of(peer), RequestLine("GET", "/x", 3, (), False))
        log.add([batch_of(record(number))], [int(log.now() * 1000)], [asked])


async def test_each_request_is_one_line_that_says_who_what_where_and_how_long(
    logging: Rig, path: Path, server: ModelServer
) -> None:
    logging.serve(server)
    secret = "Authorization: Bearer sk-secret\r\nX-Request-Id: mine\r\n"
    await logging.ask(post(path="/v1/chat/completions?api_key=hidden", extra=secret, messages=["private words"]))
    await logging.ask(post(model="nobody"))
    await until(lambda: len(lines(path)) == 2, "both lines")
    ok, refused = lines(path)
    shown = {name: ok[name] for name in ("id", "method", "path", "endpoint", "replica", "status", "bytes", "outcome")}
    assert shown == {
        "id": "mine",
        "method": "POST",
        "path": "/v1/chat/completions",
        "endpoint": "m",
        "replica": "r-0",
        "status": 200,
        "bytes": 2,
        "outcome": "ok",
    }
    assert list(ok)[:3] == ["time", "id", "client"]
    assert ok["time"].endswith("Z")
    assert ok["client"].startswith("127.0.0.1:")
    assert 0 <= ok["ttft_ms"] <= ok["total_ms"]
    assert (refused["status"], refused["outcome"]) == (404, "refused")
    assert "replica" not in refused
    raw = path.read_text()
    assert not [word for word in ("sk-secret", "hidden", "private") if word in raw]


async def test_what_was_asked_before_the_end_is_written_at_the_end(
    tmp_path: Path, path: Path, server: ModelServer
) -> None:
    async with running_gateway(tmp_path, access_log=path) as rig:
        rig.serve(server)
        for _ in range(20):
            await rig.ask(post())
    assert len(lines(path)) == 20


async def test_a_gateway_that_shall_not_log_writes_nothing(rig: Rig, tmp_path: Path, server: ModelServer) -> None:
    rig.serve(server)
    await rig.ask(post())
    assert rig.gateway.hub.counts.access is None
    assert not list(tmp_path.rglob("*.log"))


async def test_a_disk_that_takes_nothing_costs_lines_and_no_request(tmp_path: Path, server: ModelServer) -> None:
    (tmp_path / "file").write_text("no folder")
    async with running_gateway(tmp_path, access_log=tmp_path / "file" / "access.log") as rig:
        rig.serve(server)
        assert (await rig.ask(post())).status == 200
        log = rig.gateway.hub.counts.access
        assert log is not None
        await until(lambda: log.lost == 1, "the line to be lost")
        assert (await rig.ask(post())).status == 200
        await until(lambda: log.lost == 2, "the next as well")
        assert rig.gateway._log.events.count("access_log.failing") == 1  # type: ignore[attr-defined]
        text = (await rig.ask(get("/metrics"))).body.decode()
        assert "moorage_gateway_access_log_lost_total 2" in text


def test_a_full_device_costs_lines_and_those_after_it_are_whole(path: Path) -> None:
    path.symlink_to("/dev/full")
    log = access_log(path)
    add(log, 1, ("::1", 5, 0, 0))
    log.write()
    assert log.lost == 1
    path.unlink()
    add(log, 2, ("::1", 5, 0, 0))
    log.write()
    assert [line["id"] for line in lines(path)] == ["id-2"]
    assert lines(path)[0]["client"] == "[::1]:5"
    assert lines(path)[0]["time"] == "2027-01-15T08:00:00.500Z"


def test_at_its_size_a_file_is_put_aside_and_so_many_are_kept(path: Path) -> None:
    log = access_log(path, bytes_max=300)
    for number in range(12):
        add(log, number)
        log.write()
    kept = sorted(file.name for file in path.parent.iterdir())
    assert set(kept) - {"access.log"} == {"access.log.1", "access.log.2"}
    newest = [line["id"] for name in ("access.log.2", "access.log.1") for line in lines(path.with_name(name))]
    assert newest == sorted(newest, key=lambda text: int(text[3:]))
    assert all(file.stat().st_size < 600 for file in path.parent.iterdir())


def test_a_file_that_was_moved_away_is_begun_anew(path: Path) -> None:
    log = access_log(path)
    add(log, 1)
    log.write()
    path.rename(path.with_name("moved"))
    add(log, 2)
    log.write()
    assert [line["id"] for line in lines(path)] == ["id-2"]
    assert [line["id"] for line in lines(path.with_name("moved"))] == ["id-1"]


def test_more_lines_than_a_slow_disk_leaves_room_for_are_lost_and_counted(path: Path) -> None:
    log = access_log(path)
    for number in range(20_003):
        add(log, number)
    assert log.lost == 3


def test_its_settings_come_from_the_configuration() -> None:
    plain = {"server_url": "http://a", "token": "t", "state_dir": "/s", "gateway_id": "g"}
    assert GatewayConfig.from_mapping({**plain, "access_log": None}).access_log is None
    assert GatewayConfig.from_mapping({**plain, "access_log": "/var/log/a"}).access_log == Path("/var/log/a")
