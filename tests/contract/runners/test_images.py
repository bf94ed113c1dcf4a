"""Images on real engines: the pull policies, progress, and which failures may be tried again."""

import asyncio
import itertools

import pytest
from host_world import PATIENCE_S, end_of

from moorage.clock import SystemClock
from moorage.domain.errors import ImageError
from moorage.runners.containers.api import EngineApi
from moorage.runners.containers.host import ContainerHost
from moorage.runners.port import RegistryAuth
from tests.engines import IMAGE
from tests.fake_registry import digest, serving
from tests.ports import free_ports


@pytest.fixture
def registry():
    with serving() as it:
        yield it


async def prepare(world, image, on_pull=None, **given):
    return await world.host.prepare(world.intent(image=image, **given), on_pull)


async def test_an_image_is_pulled_with_progress_and_told_by_its_digest(container_world, registry):
    seen = []
    registry.drip_s = 0.15
    prepared = await prepare(container_world, registry.image, seen.append)
    assert prepared.pulled
    assert prepared.digest == digest(registry.manifest)
    assert (seen[0].image, seen[0].done) == (registry.image, 0)
    assert seen[-1].done == seen[-1].total >= len(registry.layer)
    assert all(a.done <= b.done for a, b in itertools.pairwise(seen))


async def test_without_a_command_the_image_s_own_runs_and_its_digest_is_reported(container_world, registry):
    hosted = await container_world.start(image=registry.image)
    assert (await end_of(hosted)).code == 44
    assert (await hosted.lines()).lines == ("the image itself",)
    assert hosted.identity.to_wire()["image_digest"] == digest(registry.manifest)


async def test_a_command_replaces_the_image_s_and_keeps_its_environment(container_world, registry):
    hosted = await container_world.shell("echo $OF_THE_IMAGE", image=registry.image)
    assert (await end_of(hosted)).code == 0
    assert (await hosted.lines()).lines == ("yes",)


async def test_missing_asks_the_registry_once_and_always_each_time(container_world, registry):
    await prepare(container_world, registry.image)
    asked = registry.manifests_asked
    assert asked > 0
    assert not (await prepare(container_world, registry.image, pull="missing")).pulled
    assert registry.manifests_asked == asked
    assert (await prepare(container_world, registry.image, pull="always")).pulled
    assert registry.manifests_asked > asked


async def test_never_with_an_image_that_is_absent_fails_for_good_and_asks_nobody(container_world, registry):
    with pytest.raises(ImageError) as told:
        await prepare(container_world, registry.image, pull="never")
    assert (told.value.code, told.value.permanent) == ("image_absent", True)
    assert registry.asked == []


async def test_never_with_an_image_that_is_there_is_fine(container_world):
    assert not (await prepare(container_world, IMAGE, pull="never")).pulled


@pytest.mark.parametrize(("status", "permanent"), [(401, True), (403, True), (404, True), (429, False), (500, False)])
async def test_what_the_registry_refuses_is_final_and_what_it_cannot_do_now_is_not(
    container_world, registry, status, permanent
):
    registry.status = status
    with pytest.raises(ImageError) as told:
        await prepare(container_world, registry.image)
    assert (told.value.permanent, told.value.retryable) == (permanent, not permanent), told.value.message
    assert told.value.code == "pull_failed"


async def test_a_registry_that_does_not_listen_may_come_back(container_world):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(ImageError) as told:
        await prepare(container_world, f"{address}/team/model:1")
    assert not told.value.permanent, told.value.message


@pytest.mark.parametrize("image", ["", "team/UPPER", "a b", "name:", "name@sha256:12", "http://registry/x"])
async def test_what_is_no_reference_is_final_and_never_asked_for(container_world, image):
    with pytest.raises(ImageError, match="not an image reference") as told:
        await prepare(container_world, image)
    assert told.value.permanent


async def test_a_login_is_used_and_a_wrong_one_is_final(container_world, registry):
    registry.login = ("robot", "pass-word")
    with pytest.raises(ImageError) as told:
        await prepare(container_world, registry.image, auth=RegistryAuth("robot", "wrong"))
    assert told.value.permanent, told.value.message
    assert "wrong" not in told.value.message
    assert (await prepare(container_world, registry.image, auth=RegistryAuth("robot", "pass-word"))).pulled
    assert "pass-word" not in repr(RegistryAuth("robot", "pass-word"))


async def test_a_pull_that_moves_nothing_is_given_up_and_may_be_tried_again(container_world, registry):
    registry.stall.clear()
    api = EngineApi(container_world.name, container_world.socket)
    impatient = ContainerHost(api, SystemClock(), stall_s=1.5)
    container_world.hosts.append(impatient)
    with pytest.raises(ImageError) as told:
        await impatient.prepare(container_world.intent(image=registry.image, pull="always"))
    assert (told.value.code, told.value.permanent) == ("pull_stalled", False)


async def test_a_pull_that_is_cancelled_ends(container_world, registry):
    registry.drip_s = 0.3
    registry.stall.clear()  # it gets no further than the middle, however slow we are
    begun = asyncio.Event()
    pulling = asyncio.create_task(
        prepare(container_world, registry.image, lambda progress: begun.set() if progress.done else None, pull="always")
    )
    await asyncio.wait(
        {asyncio.create_task(begun.wait()), pulling}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
    )
    assert not pulling.done()
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(pulling, PATIENCE_S)
    assert all(task.get_coro().__name__ != "_read" for task in asyncio.all_tasks())
