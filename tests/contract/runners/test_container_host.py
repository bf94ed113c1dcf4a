"""What containers have besides the common contract, on real engines: names, labels, limits, mounts, loss, memory."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from contract_world import make_host
from host_world import end_of, until, within

from moorage.clock import SystemClock
from moorage.domain.errors import RunnerError
from moorage.runners.containers.api import EngineApi, EngineError
from moorage.runners.containers.host import ContainerHost
from moorage.runners.port import Labels, MountIntent
from tests.engines import IMAGE

EATS = "x=$(yes | head -c 300000000); echo never"
CDI = Path("/etc/cdi/moorage-test.json")


def rows(world):
    with world.engine.client() as client:
        found = client.get("/containers/json", params={"all": "true"}).json()
    return [row for row in found if world.tag in row["Labels"].get("moorage.identity", "") + str(row["Names"])]


def inspect(world, hosted):
    with world.engine.client() as client:
        return client.get(f"/containers/{hosted.container}/json").json()


def foreign(world, name, labels=None):
    """A container that somebody else made; its id."""
    body = {"Image": IMAGE, "Cmd": ["sleep", "1000"], "Labels": labels or {}, "HostConfig": {"NetworkMode": "host"}}
    with world.engine.client() as client:
        made = client.post("/containers/create", params={"name": name}, json=body)
        made.raise_for_status()
        client.post(f"/containers/{made.json()['Id']}/start").raise_for_status()
        return made.json()["Id"]


def remove(world, container):
    world.engine.remove(container)


async def why_not(world, intent):
    """Why nothing of it was executed: the engines find some faults at creation, and others at the start."""
    try:
        hosted = await world.host.start(intent)
    except RunnerError as cause:
        return cause.message if cause.code == "create_failed" else cause.code
    how = await end_of(hosted)
    return "executed" if how.executed else how.error


# What is made


async def test_labels_say_whose_it_is_and_the_engine_restarts_nothing(container_world):
    labels = container_world.labels(owner="dep-1", epoch=3, digest="sha-x")
    intent = container_world.intent("/bin/sh", "-c", "exec sleep 1000", labels=labels)
    hosted = await container_world.launch(intent)
    seen = inspect(container_world, hosted)
    assert {k: v for k, v in seen["Config"]["Labels"].items() if k.startswith("moorage.")} == {
        "moorage.managed-by": "moorage",
        "moorage.owner": "dep-1",
        "moorage.identity": labels.identity,
        "moorage.epoch": "3",
        "moorage.digest": "sha-x",
        "moorage.cookie": intent.cookie,
        "moorage.image": IMAGE,
    }
    assert seen["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
    assert seen["HostConfig"]["NetworkMode"] == "host"
    assert seen["Name"].lstrip("/") == f"moorage-{labels.identity}"


async def test_limits_reach_the_kernel(container_world):
    hosted = await container_world.shell(
        "cat /proc/self/cgroup; exec sleep 1000", memory_bytes=64 << 20, cpu_milli=500, cpu_share_milli=250
    )
    groups = {
        line.split(":")[1]: line.split(":")[2]
        for line in Path(f"/proc/{hosted.identity.pid}/cgroup").read_text().splitlines()
    }
    memory, cpu = (Path("/sys/fs/cgroup") / kind / groups[kind][1:] for kind in ("memory", "cpu"))
    assert int((memory / "memory.limit_in_bytes").read_text()) == 64 << 20
    quota, period = (int((cpu / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    assert quota / period == 0.5
    assert int((cpu / "cpu.shares").read_text()) == 256


async def test_mounts_are_shown_and_read_only_ones_cannot_be_written(container_world, tmp_path):
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "a").write_text("from outside\n")
    mounts = [MountIntent(str(tmp_path / "in"), "/in", True), MountIntent(str(tmp_path / "out"), "/out")]
    hosted = await container_world.shell("cat /in/a > /out/b; touch /in/c || exit 5", mounts=mounts)
    assert (await end_of(hosted)).code == 5
    assert (tmp_path / "out" / "b").read_text() == "from outside\n"
    assert not (tmp_path / "in" / "c").exists()


async def test_a_mount_of_what_is_not_there_is_explained_and_leaves_nothing(container_world):
    intent = container_world.intent("/bin/true", mounts=[MountIntent("/no/such/folder", "/x")])
    assert "/no/such/folder" in await why_not(container_world, intent)
    assert rows(container_world) == []
    assert not Path("/no/such/folder").exists()


async def test_gpus_are_given_to_podman_by_their_cdi_names(container_world):
    if container_world.name != "podman":
        pytest.skip("docker gives GPUs through NVIDIA's runtime, which no machine without a GPU has")
    devices = [{"name": str(n), "containerEdits": {"env": [f"GPU_{n}=given"]}} for n in range(3)]
    CDI.parent.mkdir(exist_ok=True)
    CDI.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}))
    try:
        hosted = await container_world.shell('echo "$GPU_0,$GPU_1,$GPU_2"', gpus=(0, 2))
        await end_of(hosted)
    finally:
        CDI.unlink()
    assert (await hosted.lines()).lines == ("given,,given",)


async def test_gpus_that_the_engine_cannot_give_are_explained(container_world):
    assert "gpu" in (await why_not(container_world, container_world.intent("/bin/true", gpus=(7,)))).lower()
    assert rows(container_world) == []


# How it ends


async def test_a_kill_for_memory_is_told_from_any_other_kill(container_world):
    how = await end_of(await container_world.shell(EATS, memory_bytes=24 << 20))
    assert (how.code, how.signal, how.oom) == (137, 9, True)


async def test_an_end_leaves_no_container_behind(container_world):
    await end_of(await container_world.shell("exit 1"))
    assert rows(container_world) == []


async def test_one_removed_behind_our_back_is_missing(container_world):
    hosted = await container_world.shell("exec sleep 1000")
    remove(container_world, hosted.container)
    how = await end_of(hosted)
    assert (how.code, how.missing, how.stopped) == (None, True, False)


class Deaf(EngineApi):
    """An engine whose events nobody hears and whose processes nobody sees: only the poll is left."""

    def events(self):
        raise EngineError("no events here")

    async def inspect(self, container):
        found = await super().inspect(container)
        if found is not None:
            found["State"]["Pid"] = 0
        return found


@pytest.fixture
async def deaf(container_world):
    host = ContainerHost(Deaf(container_world.name, container_world.socket), SystemClock())
    container_world.host = host
    container_world.hosts.append(host)
    return container_world


async def test_without_events_the_poll_sees_an_exit(deaf):
    hosted = await deaf.shell("sleep 0.5; exit 6")
    assert hosted.seen_alive()
    assert (await end_of(hosted)).code == 6


async def test_without_events_the_poll_sees_that_one_was_removed(deaf):
    hosted = await deaf.shell("exec sleep 1000")
    remove(deaf, hosted.container)
    assert (await end_of(hosted)).missing


async def test_the_event_stream_is_taken_up_again_after_the_engine_s_restart(container_world):
    if container_world.name != "podman":
        pytest.skip("dockerd without live-restore takes its containers along")
    hosted = await container_world.shell("exec sleep 1000")
    await until(lambda: container_world.host.watch.listening)
    container_world.engine.kill()
    await until(lambda: not container_world.host.watch.listening)
    assert hosted.alive
    assert hosted.seen_alive()
    await asyncio.to_thread(container_world.engine.start_again)
    await until(lambda: container_world.host.watch.listening)
    os.kill(hosted.identity.pid, signal.SIGKILL)
    assert (await end_of(hosted)).signal == 9


async def test_an_exit_while_the_engine_is_away_is_told_once_it_is_back(container_world):
    if container_world.name != "podman":
        pytest.skip("dockerd without live-restore takes its containers along")
    hosted = await container_world.shell("trap 'exit 8' TERM; while :; do sleep 0.05; done")
    container_world.engine.kill()
    os.kill(hosted.identity.pid, signal.SIGTERM)
    await until(lambda: not hosted.seen_alive())
    assert hosted.alive  # nobody has proven how it ended
    await asyncio.to_thread(container_world.engine.start_again)
    assert (await end_of(hosted)).code == 8


async def test_a_stop_while_the_engine_is_away_is_sent_once_it_is_back(container_world):
    if container_world.name != "podman":
        pytest.skip("dockerd without live-restore takes its containers along")
    hosted = await container_world.shell("trap 'exit 8' TERM; while :; do sleep 0.05; done")
    container_world.engine.kill()
    await hosted.stop(signal.SIGTERM, 3600.0)
    assert hosted.seen_alive()
    await asyncio.to_thread(container_world.engine.start_again)
    how = await end_of(hosted)
    assert (how.code, how.stopped) == (8, True)


# Names


async def test_the_same_attempt_s_container_is_adopted_and_not_started_twice(container_world):
    intent = container_world.intent("/bin/sh", "-c", "exec sleep 1000")
    first = await container_world.launch(intent)
    any_host = make_host(container_world.name, container_world.socket)
    container_world.hosts.append(any_host)
    second = await any_host.start(replace(intent, folder=intent.folder.with_name("again")))
    assert second.container == first.container
    await within(second.running)
    assert second.identity.pid == first.identity.pid
    assert len(rows(container_world)) == 1
    container_world.hosted.append(second)


async def test_an_older_attempt_s_container_makes_room_for_the_newer(container_world):
    intent = container_world.intent("/bin/sh", "-c", "exec sleep 1000")
    old = await container_world.launch(intent)
    newer = replace(
        intent, labels=replace(intent.labels, epoch=2), cookie="c" * 32, folder=intent.folder.with_name("newer")
    )
    new = await container_world.launch(newer)
    assert new.container != old.container
    assert (await end_of(old)).missing
    assert [row["Id"] for row in rows(container_world)] == [new.container]


async def test_a_newer_attempt_is_never_removed_by_an_older(container_world):
    intent = container_world.intent("/bin/sh", "-c", "exec sleep 1000", labels=container_world.labels(epoch=5))
    new = await container_world.launch(intent)
    older = replace(intent, labels=replace(intent.labels, epoch=4), cookie="c" * 32)
    with pytest.raises(RunnerError, match="newer attempt") as told:
        await container_world.host.start(older)
    assert told.value.code == "name_taken"
    assert new.seen_alive()


@pytest.mark.parametrize("whose", ["stranger", "another owner"])
async def test_a_name_that_is_somebody_else_s_is_explained_and_left_alone(container_world, whose):
    labels: Labels = container_world.labels()
    given = {} if whose == "stranger" else {"moorage.managed-by": "moorage", "moorage.owner": "team-b"}
    theirs = foreign(container_world, f"moorage-{labels.identity}", given)
    try:
        with pytest.raises(RunnerError, match="somebody else" if whose == "stranger" else "team-b") as told:
            await container_world.host.start(container_world.intent("/bin/true", labels=labels))
        assert told.value.code == "name_taken"
        assert theirs[:12] in told.value.message
        assert [row["State"] for row in rows(container_world)] == ["running"]
    finally:
        remove(container_world, theirs)


async def test_a_container_that_was_made_and_whose_record_was_lost_is_adopted_by_its_cookie(container_world):
    intent = container_world.intent("/bin/sh", "-c", "exec sleep 1000")
    first = await container_world.launch(intent)
    container_world.hosted.remove(first)
    first.close()
    (intent.folder / "container.json").unlink()
    container_world.new_host()
    again = await container_world.adopt(intent)
    assert again.container == first.container
    assert any("cookie" in line for line in again.evidence)


async def test_a_container_that_went_while_nobody_owned_it_is_missing_when_it_is_looked_for(container_world):
    intent = container_world.intent("/bin/sh", "-c", "exec sleep 1000")
    first = await container_world.launch(intent)
    container_world.hosted.remove(first)
    first.close()
    remove(container_world, first.container)
    container_world.new_host()
    how = await end_of(await container_world.adopt(intent))
    assert (how.code, how.missing) == (None, True)


async def test_an_engine_that_does_not_answer_proves_nothing(container_world, tmp_path):
    intent = container_world.intent("/bin/sh", "-c", "exec sleep 1000")
    await container_world.launch(intent)
    lost = make_host(container_world.name, tmp_path / "no-socket")
    container_world.hosts.append(lost)
    with pytest.raises(RunnerError, match="does not answer") as told:
        await lost.adopt(intent.folder, intent.cookie)
    assert told.value.code == "engine_unavailable"
