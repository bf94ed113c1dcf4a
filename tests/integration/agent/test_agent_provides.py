"""What a worker is given reaches it, is waited for where it is not there yet, and is nowhere it should not be."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_plane import PATIENCE_S, FakePlane, until_true
from agent_process import AgentProcess
from agent_work import job, stopping

from moorage.runners.mounting import why_no_mounts
from moorage.wire.agent import (
    LaunchFile,
    LaunchMount,
    LaunchPort,
)
from moorage.wire.giving import IdentityAnswer, SecretsAnswer
from tests.ports import free_ports

W, VALUE = "wrk-1", "hunter2-hunter2-hunter2"
WHY_NO_MOUNTS = why_no_mounts(sys.executable)
needs_mounts = pytest.mark.skipif(WHY_NO_MOUNTS is not None, reason=f"no mounts for processes here: {WHY_NO_MOUNTS}")


@pytest.fixture
async def agent(make_agent: Callable[..., AgentProcess]) -> AgentProcess:
    it = make_agent()
    await it.start()
    return it


def shell(code: str, **launch: Any) -> Any:
    return job("/bin/sh", "-c", code, **launch)


# Secrets


async def test_a_worker_waits_for_its_secret_and_goes_on_once_it_is_set(
    plane: FakePlane, agent: AgentProcess, tmp_path: Path
) -> None:
    plane.secrets = SecretsAnswer(missing=(("hf-token", "value"),))
    told = tmp_path / "told"
    await plane.want(shell(f'printf %s "$TOKEN" > {told}', secrets={"TOKEN": "hf-token"}))
    await plane.until(lambda: "prepare.secret" in plane.why_not_ready(W))
    assert plane.path(W) == ["Preparing"]
    plane.secrets = SecretsAnswer(values={"TOKEN": VALUE})
    await plane.bump()
    await plane.until(lambda: plane.gone(W))
    assert told.read_text() == VALUE
    told.unlink()
    assert plane.path(W) == ["Preparing", "Starting", "Running", "Completed"]
    assert {(q.worker, q.epoch, q.machine) for q in plane.asked} == {(W, 1, "mch-test")}


async def test_a_secret_is_in_no_file_of_the_agent_and_in_no_report(plane: FakePlane, agent: AgentProcess) -> None:
    plane.secrets = SecretsAnswer(values={"TOKEN": VALUE})
    await plane.want(shell("exec sleep 1000", secrets={"TOKEN": "hf-token"}))
    await plane.until(lambda: "Running" in plane.path(W))
    pid = plane.pid(W)
    assert VALUE.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    holding = [path for path in agent.home.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert holding == []
    assert VALUE not in "".join(r.model_dump_json() for r in plane.reports)
    await plane.want(stopping(shell("exec sleep 1000", secrets={"TOKEN": "hf-token"}), grace_s=0.2))
    await plane.until(lambda: plane.gone(W))


async def test_a_secret_that_never_comes_ends_the_wait_with_its_step(plane: FakePlane, agent: AgentProcess) -> None:
    plane.secrets = SecretsAnswer(missing=(("hf-token", "value"),))
    await plane.want(shell("true", secrets={"TOKEN": "hf-token"}, prepare_timeout_s=2.0))
    await plane.until(lambda: plane.gone(W))
    assert plane.codes(W) == ["prepare.started", "prepare.timed_out"]
    assert plane.last(W).steps[-1].params["step"] == "waiting for its secrets"


async def test_a_stop_ends_the_wait_for_a_secret(plane: FakePlane, agent: AgentProcess) -> None:
    plane.secrets = SecretsAnswer(missing=(("hf-token", "value"),))
    wanted = shell("true", secrets={"TOKEN": "hf-token"})
    await plane.want(wanted)
    await plane.until(lambda: plane.why_not_ready(W))
    await plane.want(stopping(wanted))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Cancelled"]


# Config files and mounts


@needs_mounts
async def test_config_files_and_mounts_are_seen_at_their_places(
    plane: FakePlane, agent: AgentProcess, tmp_path: Path
) -> None:
    for name in ("data", "etc"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "weights").write_text("weights")
    code = f"cat {tmp_path}/etc/app.toml {tmp_path}/shown/weights > {tmp_path}/data/told; touch {tmp_path}/etc/app.toml"
    await plane.want(
        shell(
            code,
            configs=(LaunchFile(path=f"{tmp_path}/etc/app.toml", content="answer = 42\n"),),
            mounts=(LaunchMount(source=f"{tmp_path}/data", target=f"{tmp_path}/shown"),),
        )
    )
    await plane.until(lambda: plane.gone(W))
    assert (tmp_path / "data" / "told").read_text() == "answer = 42\nweights"
    assert plane.last(W).exit_code != 0, "a config file is read-only"
    assert (tmp_path / "etc" / "app.toml").read_text() == "", "only its place is on the machine"


async def test_a_mount_whose_source_is_not_there_is_an_invalid_start(
    plane: FakePlane, agent: AgentProcess, tmp_path: Path
) -> None:
    mount = LaunchMount(source=f"{tmp_path}/nowhere", target="/data")
    await plane.want(shell("true", mounts=(mount,)))
    await plane.until(lambda: plane.gone(W))
    failure = plane.last(W).steps[-1]
    expected = "setup.failed" if WHY_NO_MOUNTS else "start.invalid"
    assert (failure.to, failure.code) == ("Failed", expected)


@needs_mounts
async def test_a_join_says_that_this_machine_has_mounts(plane: FakePlane, agent: AgentProcess) -> None:
    await plane.until(lambda: plane.joins)
    assert "mounts" in plane.joins[0].capabilities


# Identity


async def test_a_worker_waits_for_its_certificate_and_finds_it_in_its_folder(
    plane: FakePlane, agent: AgentProcess, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    await plane.want(shell(f"cat $MOORAGE_IDENTITY_DIR/*.pem > {told}", identity=True))
    await plane.until(lambda: "prepare.identity" in plane.why_not_ready(W))
    plane.identity = IdentityAnswer(certificate="[cert]", key="[key]", authority="[ca]")
    await plane.bump()
    await plane.until(lambda: plane.gone(W))
    assert told.read_text() == "[ca][cert][key]"
    assert "[key]" not in "".join(r.model_dump_json() for r in plane.reports)


# Exposed ports

ECHO = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open(sys.argv[2], "w").close()
while True:
    peer, _ = server.accept()
    taken = b""
    while part := peer.recv(65536):
        taken += part
    peer.sendall(b"%d:" % len(taken) + taken)
    peer.close()
"""
"""Answers only once its peer has said everything: what a half-closed connection is for."""


def echo(port: int, up: Path, **exposed: Any) -> Any:
    expose = (LaunchPort(port=port, protocol="tcp", **exposed),)
    return job(sys.executable, "-c", ECHO, str(port), str(up), expose=expose)


async def ask(address: str, data: bytes) -> bytes:
    """Say something and everything that was, then read the answer to its end."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(-1), PATIENCE_S)
    writer.close()
    return answer


def ports(plane: FakePlane) -> dict[str, str]:
    return next((r.ports for r in reversed(plane.of(W)) if r.ports), {})


async def test_an_external_port_passes_half_closed_connections_on_and_stays_over_a_restart(
    plane: FakePlane, agent: AgentProcess, tmp_path: Path
) -> None:
    port, up = free_ports(1)[0], tmp_path / "up"
    await plane.want(echo(port, up, external=True))
    await plane.until(lambda: "Running" in plane.path(W))
    outside = ports(plane)[str(port)]
    assert outside != f"127.0.0.1:{port}"
    await until_true(up.exists)
    data = bytes(range(256)) * 8192
    assert await ask(outside, data) == b"%d:" % len(data) + data
    assert b"MOORAGE_PORT_%d=%s" % (port, outside.encode()) in Path(f"/proc/{plane.pid(W)}/environ").read_bytes()

    reconciles = len(plane.reconciles)
    await agent.kill()
    with pytest.raises(OSError):
        await ask(outside, b"nobody is here")
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) > reconciles)
    assert await ask(outside, b"again") == b"5:again"

    await plane.want(stopping(echo(port, up, external=True), grace_s=1.0))
    await plane.until(lambda: plane.gone(W))
    with pytest.raises(OSError):
        await ask(outside, b"it is over")


async def test_a_port_that_somebody_has_is_refused_with_who_has_it(
    plane: FakePlane, agent: AgentProcess, tmp_path: Path
) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        await plane.want(echo(port, tmp_path / "up"))
        await plane.until(lambda: plane.gone(W))
    failure = plane.last(W).steps[-1]
    assert failure.code == "setup.failed"
    assert failure.params["feature"] == f"port {port}"
    assert "is already in use by" in failure.params["error"]


async def test_an_external_port_waits_for_one_of_the_pool(
    plane: FakePlane, make_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    only = free_ports(1)[0]
    agent = make_agent(ports=(only, only))
    await agent.start()
    with contextlib.closing(socket.create_server(("127.0.0.1", only))):
        await plane.want(echo(free_ports(1)[0], tmp_path / "up", external=True))
        await plane.until(lambda: "prepare.external_port" in plane.why_not_ready(W))
    await plane.until(lambda: "Running" in plane.path(W))
    assert list(ports(plane).values()) == [f"127.0.0.1:{only}"]
    await plane.want(stopping(echo(1, tmp_path / "up"), grace_s=0.2))
    await plane.until(lambda: plane.gone(W))
