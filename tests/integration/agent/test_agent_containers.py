"""The agent with real container engines: a pull's and a start's steps, adoption, loss, an engine that is away."""

import asyncio

import pytest
from agent_plane import until_true
from agent_work import stopping

from moorage.runners.port import Labels
from moorage.wire.agent import Assignment, Launch, Ready
from tests.engines import IMAGE, Engine
from tests.fake_registry import digest, serving

W = "wrk-1"


def container(engine: Engine, code: str, *, epoch: int = 1, **launch: object) -> Assignment:
    wanted = {"image": IMAGE, "command": ("/bin/sh", "-c", code), "name": "it", **launch}
    return Assignment(
        worker=W, run="run-1", owner="dep-1", digest="d", epoch=epoch, launch=Launch(runner=engine.name, **wanted)
    )


def served(engine: Engine, **given: object) -> Assignment:
    code = "exec httpd -f -p {host}:{port} -h /www"
    return container(engine, code, port=True, ready=Ready(model="tiny", interval_s=0.05), **given)


def containers(engine: Engine) -> list[dict]:
    with engine.client() as client:
        return client.get("/containers/json", params={"all": "true"}).json()


@pytest.fixture
async def agent(make_agent, engine):
    other = "docker" if engine.name == "podman" else "podman"
    it = make_agent(engines={engine.name: str(engine.socket), other: ""})
    await it.start()
    yield it
    for row in containers(engine):
        engine.remove(row["Id"])


async def test_a_join_names_the_engines_that_answer(plane, agent, engine):
    await plane.until(lambda: plane.joins)
    assert plane.joins[0].engines == ("process", engine.name)


async def test_a_server_in_a_container_is_pulled_started_ready_and_stopped(plane, agent, engine):
    with serving() as registry:
        await plane.want(served(engine, image=registry.image))
        await plane.until(lambda: plane.ready(W))
        assert plane.path(W) == ["Preparing", "Pulling", "Starting", "Running"]
        assert plane.codes(W)[:4] == ["prepare.started", "image.pulling", "container.started", "container.running"]
        process = next(r.process for r in plane.of(W) if r.process)
        assert (process["engine"], process["image_digest"]) == (engine.name, digest(registry.manifest))
        assert [r["Labels"]["moorage.identity"] for r in containers(engine)] == [W]
        await plane.want(stopping(served(engine, image=registry.image), grace_s=0.2))
        await plane.until(lambda: plane.gone(W))
        assert plane.path(W)[-1] == "Cancelled"
        assert containers(engine) == []


async def test_an_image_that_cannot_be_had_fails_while_pulling_and_says_whether_for_good(plane, agent, engine):
    with serving() as registry:
        registry.status = 404
        await plane.want(container(engine, "exit 0", image=registry.image))
        await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Pulling", "Failed"]
    assert plane.codes(W)[-1] == "image.pull_failed"
    assert plane.of(W)[-1].steps[-1].params["permanent"] is True


async def test_an_image_that_is_absent_and_must_not_be_pulled_is_told_so(plane, agent, engine):
    await plane.want(container(engine, "exit 0", image="localhost/absent:1", pull="never"))
    await plane.until(lambda: plane.gone(W))
    assert (plane.path(W), plane.codes(W)[-1]) == (["Preparing", "Failed"], "image.absent")


async def test_a_stop_in_the_middle_of_a_pull_ends_it_and_nothing_is_started(plane, agent, engine):
    with serving() as registry:
        registry.stall.clear()
        await plane.want(container(engine, "exit 0", image=registry.image))
        await plane.until(lambda: "Pulling" in plane.path(W))
        await plane.want(stopping(container(engine, "exit 0", image=registry.image)))
        await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Pulling", "Cancelled"]
    assert containers(engine) == []


async def test_an_agent_that_dies_in_the_middle_of_a_pull_pulls_again_and_tells_no_step_twice(plane, agent, engine):
    with serving() as registry:
        registry.stall.clear()
        await plane.want(served(engine, image=registry.image))
        await plane.until(lambda: "Pulling" in plane.path(W))
        await until_true(lambda: agent.remembers_state(W) == "Pulling")
        await agent.kill()
        await agent.start()
        await plane.until(lambda: len(plane.reconciles) > 1)
        registry.stall.set()
        await plane.until(lambda: plane.ready(W))
    assert plane.path(W) == ["Preparing", "Pulling", "Starting", "Running"]
    assert len(containers(engine)) == 1


async def test_a_container_survives_the_kill_of_the_agent_and_is_adopted(plane, agent, engine):
    await plane.want(served(engine))
    await plane.until(lambda: plane.ready(W))
    await until_true(lambda: agent.remembers_ready(W))
    before = containers(engine)
    await agent.kill()
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) > 1)
    held = plane.reconciles[-1].held
    assert [(h.worker, h.alive, h.ready) for h in held] == [(W, True, True)]
    assert [r["Id"] for r in containers(engine)] == [r["Id"] for r in before]
    assert plane.path(W).count("Running") == 1


async def test_what_comes_back_through_mounts_and_variables_reaches_the_container(plane, agent, engine, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("seen\n")
    code = "cat /data/a; echo $V; echo out > $MOORAGE_OUTPUT_DIR/result; touch /data/b; exit $?"
    mounts = [{"source": str(tmp_path / "data"), "target": "/data", "read_only": True}]
    await plane.want(container(engine, code, mounts=mounts, env={"V": "{name}"}))
    await plane.until(lambda: plane.gone(W))
    assert plane.last(W).exit_code == 1  # the mount is read-only
    assert (agent.home / "output" / "run-1" / "0" / "result").read_text() == "out\n"
    tail = next(r.log_tail for r in plane.of(W) if r.log_tail)
    assert {"seen", "it"} <= set(tail.splitlines())


async def test_a_container_removed_by_somebody_else_is_missing(plane, agent, engine):
    await plane.want(container(engine, "exec sleep 1000"))
    await plane.until(lambda: "Running" in plane.path(W))
    engine.remove(containers(engine)[0]["Id"])
    await plane.until(lambda: plane.gone(W))
    assert plane.codes(W)[-1] == "container.missing"


async def test_while_its_engine_is_away_a_container_counts_as_held_and_is_found_when_it_is_back(plane, agent, engine):
    if engine.name == "docker":
        pytest.skip("dockerd without live-restore takes its containers along")
    await plane.want(container(engine, "exec sleep 1000"))
    await plane.until(lambda: "Running" in plane.path(W))
    await agent.kill()
    engine.kill()
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) > 1)
    assert [h.alive for h in plane.reconciles[-1].held] == [True]
    assert not plane.gone(W)
    await asyncio.to_thread(engine.start_again)
    await plane.want(stopping(container(engine, "exec sleep 1000"), grace_s=0.1))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Cancelled"
    assert containers(engine) == []


def test_labels_of_an_attempt_are_those_of_its_assignment(tmp_path):
    from moorage.agent import setting_up
    from moorage.agent.config import AgentConfig
    from moorage.agent.ledger import Attempt

    config = AgentConfig(server_url="http://x", name="m", home=tmp_path)
    wanted = Assignment(
        worker=W, run="run-1", owner="dep-1", digest="d", epoch=4, launch=Launch(runner="podman", image=IMAGE)
    )
    attempt = Attempt(worker=W, epoch=4, cookie="c", folder=str(tmp_path / "w"), assignment="")
    assert setting_up.intent(wanted, attempt, config).labels == Labels("dep-1", W, 4, "d")


async def test_an_agent_whose_folder_was_lost_removes_its_containers_and_no_others(plane, agent, engine, tmp_path):
    await plane.want(container(engine, "exec sleep 1000"))
    await plane.until(lambda: "Running" in plane.path(W))
    old = plane.of(W)[-1].process["container"]
    folder = "/elsewhere/agent/workers/wrk-other/1-cccccccc"
    told = {"MOORAGE_WORKER": "wrk-other", "MOORAGE_EPOCH": "1", "MOORAGE_HEARTBEAT_FILE": f"{folder}/shared/heartbeat"}
    env = [f"{name}={value}" for name, value in {**told, "MOORAGE_COOKIE": "c" * 32}.items()]
    body = {"Image": IMAGE, "Env": env, "Labels": {"moorage.managed-by": "moorage"}, "Cmd": ["/bin/true"]}
    with engine.client() as client:
        theirs = client.post("/containers/create", json=body).json()["Id"]
    await agent.kill()
    agent.home.rename(tmp_path / "away")
    await plane.drop(W)
    await agent.start()
    await plane.until(lambda: len(plane.reconciles) == 2)
    left = [row["Id"] for row in containers(engine)]
    assert old not in left
    assert theirs in left
    assert plane.reconciles[1].held == ()


def log_of(agent) -> str:
    return "".join(p.read_text() for p in agent.home.glob(f"workers/{W}/*/log.*"))


async def test_a_member_in_a_container_has_its_image_before_the_barrier_and_its_names_and_limit_after(
    plane, agent, engine
):
    code = 'trap "exit 0" TERM; echo "$MASTER_ADDR:$MASTER_PORT $RANK $MOORAGE_HOSTS"; while :; do sleep 0.1; done'
    with serving() as registry:
        given = {"barrier": True, "rank": 1, "world_size": 2, "time_limit_s": 3600.0, "stop_grace_s": 5.0}
        it = container(engine, code, image=registry.image, **given).model_copy(update={"go": False})
        await plane.want(it)
        await plane.until(lambda: "ReadyToStart" in plane.path(W))
    assert plane.path(W) == ["Preparing", "Pulling", "ReadyToStart"]
    assert containers(engine) == []
    await until_true(lambda: agent.remembers_state(W) == "ReadyToStart")
    await agent.kill()
    await plane.want(it.model_copy(update={"go": True, "leader": "10.0.0.9:29500", "hosts": ("10.0.0.9", "10.0.0.8")}))
    await agent.start()
    await plane.until(lambda: "Running" in plane.path(W))
    await until_true(lambda: "10.0.0.9:29500 1 10.0.0.9,10.0.0.8" in log_of(agent))
    await until_true(lambda: agent.remembers_state(W) == "Running")
    await agent.kill()
    agent.alter_memory("UPDATE attempts SET started = started - 3600")  # an hour passes
    await agent.start()
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[2:] == ["ReadyToStart", "Starting", "Running", "Stopping", "Cancelled"]
    assert plane.codes(W)[-2:] == ["stop.time_limit", "stop.confirmed"]
