"""What a container is given by a real engine: config files, mounts, secrets, a login at the registry of its image."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agent_plane import FakePlane
from agent_process import AgentProcess
from agent_work import stopping

from moorage.wire.agent import (
    Assignment,
    Launch,
    LaunchFile,
    LaunchMount,
)
from moorage.wire.giving import SecretsAnswer
from tests.engines import IMAGE, Engine
from tests.fake_registry import serving

W = "wrk-1"


def container(engine: Engine, code: str, **launch: Any) -> Assignment:
    wanted = {"image": IMAGE, "command": ("/bin/sh", "-c", code), "name": "it", **launch}
    return Assignment(
        worker=W, run="run-1", owner="run-1", digest="d", epoch=1, launch=Launch(runner=engine.name, **wanted)
    )


@pytest.fixture
async def agent(make_agent: Callable[..., AgentProcess], engine: Engine) -> AsyncIterator[AgentProcess]:
    other = "docker" if engine.name == "podman" else "podman"
    it = make_agent(engines={engine.name: str(engine.socket), other: ""})
    await it.start()
    yield it
    with engine.client() as client:
        for row in client.get("/containers/json", params={"all": "true"}).json():
            engine.remove(row["Id"])


async def test_a_container_has_its_files_mounts_and_secrets(
    plane: FakePlane, agent: AgentProcess, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    plane.secrets = SecretsAnswer(values={"TOKEN": "sesame"})
    code = 'cat /etc/app.toml > /data/told; echo -n " $TOKEN" >> /data/told; echo changed > /etc/app.toml'
    await plane.want(
        container(
            engine,
            code,
            secrets={"TOKEN": "hf-token"},
            configs=(LaunchFile(path="/etc/app.toml", content="answer = 42"),),
            mounts=(LaunchMount(source=f"{tmp_path}/data", target="/data"),),
        )
    )
    await plane.until(lambda: plane.gone(W))
    assert (tmp_path / "data" / "told").read_text() == "answer = 42 sesame"
    assert plane.last(W).exit_code != 0, "a config file is read-only"


async def test_a_registry_that_wants_a_login_gets_that_of_the_secret(
    plane: FakePlane, agent: AgentProcess, engine: Engine
) -> None:
    with serving() as registry:
        registry.login = ("me", "open")
        plane.secrets = SecretsAnswer(missing=(("ghcr", "username"), ("ghcr", "password")))
        wanted = container(engine, "exit 0", image=registry.image, registry_secret="ghcr")
        await plane.want(wanted)
        await plane.until(lambda: "prepare.registry_secret" in plane.why_not_ready(W))
        assert registry.asked == []
        plane.secrets = SecretsAnswer(registry={"username": "me", "password": "open"})
        await plane.bump()
        await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Completed"


async def test_a_login_is_not_sent_to_another_registry_than_it_is_for(
    plane: FakePlane, agent: AgentProcess, engine: Engine
) -> None:
    with serving() as registry:
        registry.login = ("me", "open")
        plane.secrets = SecretsAnswer(registry={"username": "me", "password": "open", "server": "ghcr.test"})
        wanted = container(engine, "exit 0", image=registry.image, registry_secret="ghcr")
        await plane.want(wanted)
        await plane.until(lambda: plane.gone(W))
        assert plane.last(W).steps[-1].code == "image.pull_failed"
        await plane.want(stopping(wanted))
