"""The gateway takes tables, confirms them, reports demand at once, and lives without its control plane."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from gateway_process import gateway_process
from gateway_rig import DEADLINE_S, ModelServer, Seen, get, post, reply, running_gateway, until

from moorage.gateway.control import Backoff
from moorage.wire.routing import Access, EndpointRoute, GatewayReport, NamespaceRule, RoutingTable, Target


@dataclass
class ControlPlane:
    """Serves tables by long poll and keeps the reports."""

    table: RoutingTable | None = None
    reports: list[GatewayReport] = field(default_factory=list)
    polls: list[dict[str, str]] = field(default_factory=list)
    announced: int = 0
    forced: RoutingTable | None = None
    """sent once, whatever the poll asks for"""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    server: ModelServer = field(default_factory=ModelServer)

    async def start(self, port: int = 0) -> "ControlPlane":
        self.server = ModelServer(self.handle)
        await self.server.start(port)
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def publish(self, table: RoutingTable) -> None:
        self.table = table
        self.announced = table.number
        self.changed.set()

    async def handle(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert seen.headers["authorization"] == "Bearer tok"
        if seen.path == "/api/v1/routing/report":
            self.reports.append(GatewayReport.model_validate_json(seen.body))
            writer.write(reply(json.dumps({"lease_s": 30, "number": self.announced}).encode()))
            return
        query = {k: v[0] for k, v in parse_qs(urlsplit(seen.path).query).items()}
        self.polls.append(query)
        while self.forced is None and (self.table is None or self._known(query)):
            if query["wait_s"] == "0":
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                return
            self.changed.clear()
            await self.changed.wait()
        sent, self.forced = self.forced or self.table, None
        assert sent is not None
        writer.write(reply(sent.model_dump_json().encode()))

    def _known(self, query: dict[str, str]) -> bool:
        table = self.table
        return (
            table is not None and query.get("incarnation") == table.incarnation and int(query["after"]) >= table.number
        )


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    plane = await ControlPlane().start()
    yield plane
    await plane.server.stop()


def table(number: int, *servers: ModelServer, mode: str = "serve", incarnation: str = "s-1") -> RoutingTable:
    targets = tuple(Target(replica=f"r{n}", revision="1", host="127.0.0.1", port=s.port) for n, s in enumerate(servers))
    route = EndpointRoute(name="m", deployment="m", mode=mode, targets=targets)  # type: ignore[arg-type]
    return RoutingTable(incarnation=incarnation, number=number, endpoints=(route,))


async def test_a_table_is_applied_kept_and_confirmed(tmp_path: Path, plane: ControlPlane, server: ModelServer) -> None:
    plane.publish(table(3, server))
    async with running_gateway(tmp_path, server_url=plane.url) as rig:
        await until(lambda: plane.reports and plane.reports[-1].table_number == 3)
        assert plane.reports[-1].table_incarnation == "s-1"
        assert plane.reports[-1].address == rig.gateway.address
        assert (await rig.ask(post())).status == 200
        await until(lambda: plane.reports[-1].endpoints)
        activity = plane.reports[-1].endpoints[0]
        assert (activity.name, activity.requests, activity.in_flight, activity.held) == ("m", 1, 0, 0)
        assert activity.idle_s is not None
    assert json.loads((tmp_path / "routing-table.json").read_text())["number"] == 3


async def test_demand_at_a_sleeping_endpoint_is_reported_without_waiting_for_a_tick(
    tmp_path: Path, plane: ControlPlane, server: ModelServer
) -> None:
    plane.publish(table(1, mode="asleep"))
    async with running_gateway(tmp_path, server_url=plane.url) as rig:
        await until(lambda: plane.reports and plane.reports[-1].table_number == 1)
        rig.gateway.hub.on_tick = lambda: None
        asking = [asyncio.ensure_future(rig.ask(post())) for _ in range(3)]
        await until(lambda: any(a.held for r in plane.reports for a in r.endpoints))
        plane.publish(table(2, server))
        assert [(await task).status for task in asking] == [200] * 3


async def test_a_gateway_starts_from_its_kept_table_while_the_control_plane_is_absent(
    tmp_path: Path, plane: ControlPlane, server: ModelServer
) -> None:
    plane.publish(table(5, server))
    async with running_gateway(tmp_path, server_url=plane.url):
        await until(lambda: plane.reports and plane.reports[-1].table_number == 5)
    await plane.server.stop()
    async with running_gateway(tmp_path, server_url=plane.url) as rig:
        assert (await rig.ask(post())).status == 200
        back = await ControlPlane(table=table(6, server)).start(plane.server.port)
        await until(lambda: back.reports and back.reports[-1].table_number == 6)
        assert rig.router.control_lost_at is None
        await back.server.stop()


async def test_a_lower_generation_is_ignored_and_another_store_is_accepted(
    tmp_path: Path, plane: ControlPlane, server: ModelServer
) -> None:
    plane.publish(table(9, server))
    async with running_gateway(tmp_path, server_url=plane.url) as rig:
        await until(lambda: rig.router.generation and rig.router.generation.number == 9)
        await until(lambda: plane.polls and plane.polls[-1].get("after") == "9")
        polls = len(plane.polls)
        plane.forced = table(8, mode="stopped")
        plane.changed.set()
        await until(lambda: len(plane.polls) > polls, "the old table was received")
        assert rig.router.generation.number == 9
        assert (await rig.ask(post())).status == 200
        plane.publish(table(1, mode="stopped", incarnation="s-2"))
        await until(lambda: rig.router.generation.incarnation == "s-2")
        assert (await rig.ask(post())).status == 503


async def test_a_poll_that_hangs_is_noticed_by_the_answer_to_a_report(
    tmp_path: Path, plane: ControlPlane, server: ModelServer
) -> None:
    plane.publish(table(1, server))
    async with running_gateway(tmp_path, server_url=plane.url) as rig:
        await until(lambda: plane.reports and plane.reports[-1].table_number == 1)
        await until(lambda: len(plane.polls) >= 2)
        polls = len(plane.polls)
        plane.table, plane.announced = table(2, server), 2  # published, but the waiting poll never hears of it
        for _ in range(3):
            sent = len(plane.reports)
            rig.gateway.hub.demand()
            await until(lambda sent=sent: len(plane.reports) > sent)
        await until(lambda: rig.router.generation.number == 2)
        assert len(plane.polls) > polls


async def test_an_unreadable_kept_table_does_not_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "routing-table.json").write_text("{half")
    async with running_gateway(tmp_path) as rig:
        assert (await rig.ask(get("/livez"))).status == 200
        assert (await rig.ask(post())).status == 503
        assert "table.unreadable" in rig.gateway._log.events


async def test_a_cold_endpoint_is_refused_only_when_the_control_plane_is_away_for_longer_than_a_restart(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path) as rig:
        rig.serve(mode="asleep")
        rig.router.control_lost_at = rig.gateway.hub.time() - 11
        answer = await rig.ask(post())
        assert (answer.status, answer.error["code"]) == (503, "control_plane_unreachable")
        assert answer.headers["retry-after"]


def test_reconnecting_waits_grow_to_two_seconds_and_begin_at_fifty_milliseconds() -> None:
    backoff = Backoff(lambda: 0.999999)
    waits = [backoff.next_s() for _ in range(8)]
    assert waits[0] == pytest.approx(0.05, rel=1e-3)
    assert waits[-1] == pytest.approx(2.0, rel=1e-3)
    backoff.reset()
    assert backoff.next_s() < 0.051


@dataclass
class Process:
    process: asyncio.subprocess.Process
    port: int


async def start_process(tmp_path: Path, **settings: object) -> Process:
    config = tmp_path / "gateway.json"
    values = {
        "server_url": "http://127.0.0.1:9",
        "token": "tok",
        "gateway_id": "g",
        "state_dir": str(tmp_path),
        "port": 0,
        "allowed_hosts": ["g"],
    }
    config.write_text(json.dumps({**values, **settings}))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "moorage.gateway.main",
        "--config",
        str(config),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while True:
            line = await process.stderr.readline()
            assert line, "the process ended before it listened"
            event = json.loads(line)
            if event["event"] == "gateway.listening":
                return Process(process, int(event["address"].rpartition(":")[2]))


async def test_the_process_ends_gracefully_and_finishes_what_runs(tmp_path: Path, server: ModelServer) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(reply(b"finished"))

    server.handler = wait
    (tmp_path / "routing-table.json").write_text(table(1, server).model_dump_json())
    running = await start_process(tmp_path)
    idle_reader, _ = await asyncio.open_connection("127.0.0.1", running.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(post())
    await until(lambda: server.seen)
    running.process.send_signal(signal.SIGTERM)
    assert await idle_reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", running.port)
    gate.set()
    answer = await reader.read()
    assert b"Connection: close" in answer
    assert answer.endswith(b"finished")
    assert await running.process.wait() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nonsense": 1}, "unknown setting 'nonsense'"),
        ({"server_url": "ftp://x"}, "not an http(s) address"),
        ({"allowed_origins": "https://a"}, "allowed_origins must be a list"),
    ],
)
async def test_bad_settings_end_the_process_with_what_to_do(
    tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    config = tmp_path / "gateway.json"
    values = {"server_url": "http://127.0.0.1:9", "token": "t", "gateway_id": "g", "state_dir": str(tmp_path)}
    config.write_text(json.dumps({**values, **settings}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage.gateway.main", "--config", str(config), stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert message in stderr.decode()


async def test_rules_that_a_gateway_has_are_left_out_of_tables_and_stay_in_force(
    tmp_path: Path, plane: ControlPlane, server: ModelServer
) -> None:
    required = Access(number=7, namespaces=(NamespaceRule(namespace="default", keys="required"),))
    plane.publish(table(3, server).model_copy(update={"access": required}))
    async with running_gateway(tmp_path, server_url=plane.url) as rig:
        await until(lambda: plane.polls and plane.polls[-1].get("access") == "7", "it says which rules it has")
        plane.publish(table(4, server))
        await until(lambda: plane.reports and plane.reports[-1].table_number == 4)
        assert (await rig.ask(post())).status == 401
    kept = RoutingTable.model_validate_json((tmp_path / "routing-table.json").read_bytes())
    assert (kept.number, kept.access) == (4, required)


async def test_every_process_tells_which_of_its_gateway_run_so_that_those_that_ended_are_forgotten(
    tmp_path: Path, plane: ControlPlane
) -> None:
    def told_by(*ids: str) -> bool:
        """Whether each of these said last that they run, and no others."""
        last = {report.gateway: set(report.processes) for report in plane.reports if not report.leaving}
        return all(last.get(gateway) == set(ids) for gateway in ids)

    async with gateway_process(tmp_path, processes=2, server_url=plane.url) as first:
        await until(lambda: told_by("g/1", "g/2"), "both are known")
        first.process.kill()
        await first.process.wait()
        async with gateway_process(tmp_path, processes=2, server_url=plane.url):
            await until(lambda: told_by("g/1~2", "g/2~2"), "those of the master before have ended")
