"""A plain process sees what its launch mounts, read-only where asked, and nobody else on the machine does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from host_world import World, end_of

from moorage.domain.errors import RunnerError
from moorage.runners import logfile
from moorage.runners.mounting import check_sources, make_points, why_no_mounts
from moorage.runners.port import MountIntent

WHY_NOT = why_no_mounts(sys.executable)
needs_mounts = pytest.mark.skipif(WHY_NOT is not None, reason=f"this machine makes no mounts for processes: {WHY_NOT}")


@pytest.fixture
def places(tmp_path: Path) -> Path:
    base = tmp_path / "places"
    for name in ("source", "target"):
        (base / name).mkdir(parents=True)
    (base / "source" / "weights").write_text("of the source")
    (base / "target" / "own").write_text("of the target")
    return base


async def said(world: World, script: str, mounts: list[MountIntent]) -> str:
    process = await world.start("/bin/sh", "-c", script, mounts=mounts)
    how = await end_of(process)
    return f"{how.code}\n{logfile.tail(process.folder)}"


@needs_mounts
async def test_a_mount_is_seen_by_the_command_and_by_nobody_else(world: World, places: Path) -> None:
    mounts = [MountIntent(f"{places}/source", f"{places}/target")]
    text = await said(world, f"cat {places}/target/weights && touch {places}/target/written", mounts)
    assert text.startswith("0")
    assert "of the source" in text
    assert [path.name for path in (places / "target").iterdir()] == ["own"]
    assert (places / "source" / "written").exists()


@needs_mounts
async def test_a_read_only_mount_cannot_be_written_to(world: World, places: Path) -> None:
    mounts = [MountIntent(f"{places}/source", f"{places}/target", read_only=True)]
    text = await said(world, f"cat {places}/target/weights; touch {places}/target/written", mounts)
    assert "of the source" in text
    assert "Read-only file system" in text
    assert not (places / "source" / "written").exists()


@needs_mounts
async def test_a_mount_below_a_read_only_one_is_read_only_too(world: World, places: Path) -> None:
    """Our own second mount stands for a disk that is mounted below the source."""
    (places / "source" / "below").mkdir()
    (places / "disk").mkdir()
    mounts = [
        MountIntent(f"{places}/disk", f"{places}/source/below"),
        MountIntent(f"{places}/source", f"{places}/target", read_only=True),
    ]
    text = await said(world, f"touch {places}/target/below/written", mounts)
    assert "Read-only file system" in text
    assert not list((places / "disk").iterdir())


@needs_mounts
async def test_a_file_is_mounted_over_a_file(world: World, places: Path) -> None:
    mounts = [MountIntent(f"{places}/source/weights", f"{places}/target/own", read_only=True)]
    assert "of the source" in await said(world, f"cat {places}/target/own", mounts)
    assert (places / "target" / "own").read_text() == "of the target"


@needs_mounts
async def test_the_working_directory_may_be_a_mount(world: World, places: Path) -> None:
    mounts = [MountIntent(f"{places}/source", f"{places}/target")]
    process = await world.start("/bin/sh", "-c", "cat weights", mounts=mounts, workdir=f"{places}/target")
    await end_of(process)
    assert "of the source" in logfile.tail(process.folder)


@needs_mounts
async def test_a_mount_that_the_kernel_refuses_is_a_failed_start_with_its_name(world: World, places: Path) -> None:
    mounts = [MountIntent(f"{places}/source", f"{places}/nowhere")]
    how = await end_of(await world.start("/bin/true", mounts=mounts))
    assert how.code == 127
    assert f"cannot mount: No such file or directory: {places}/source at {places}/nowhere" in how.error


@needs_mounts
async def test_a_tree_with_mounts_is_stopped_and_adopted_like_any_other(world: World, places: Path) -> None:
    mounts = [MountIntent(f"{places}/source", f"{places}/target")]
    process = await world.start("/bin/sleep", "1000", mounts=mounts)
    again = await world.adopt(process.folder)
    assert again is not None
    assert again.alive
    await again.stop(15, 20.0)
    assert (await end_of(again)).signal == 15


@needs_mounts
def test_an_ordinary_user_gets_mounts_through_a_user_namespace(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    rooms = Path("src/moorage/runners").absolute()
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from shimming import mounts; "
        "mounts.enter([('/usr', '/opt', True)]); "
        "print(os.getuid(), os.path.isdir('/opt/bin'), os.access('/opt', os.W_OK))"
    )
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip("needs a Python that everybody may execute")
    command = [python, "-I", "-S", "-c", script, str(rooms)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False, user=65534, group=65534, cwd="/")
    if "ModuleNotFoundError" in tried.stderr or "PermissionError" in tried.stderr:
        pytest.skip("the checkout is not readable for everybody")
    if "a mount namespace" in tried.stderr:
        pytest.skip("user namespaces are switched off here")
    assert tried.stdout.split() == ["65534", "True", "False"], tried.stderr


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="does not exist on this machine") as refused:
        check_sources([MountIntent(f"{tmp_path}/no", "/data")])
    assert refused.value.code == "start_invalid"
    with pytest.raises(RunnerError, match="not an absolute path"):
        check_sources([MountIntent("data", "/data")])


def test_missing_places_are_made_and_stay(places: Path) -> None:
    sources = (
        MountIntent(f"{places}/source", f"{places}/a/b"),
        MountIntent(f"{places}/source/weights", f"{places}/c/d"),
    )
    make_points(sources)
    make_points(sources)
    assert (places / "a" / "b").is_dir()
    assert (places / "c" / "d").read_text() == ""


def test_a_place_of_another_sort_is_refused(places: Path) -> None:
    with pytest.raises(RunnerError, match=r"is a directory and cannot be mounted at .*, which is a file"):
        make_points([MountIntent(f"{places}/source", f"{places}/target/own")])


def test_a_place_that_cannot_be_made_is_told_with_the_way_out(places: Path) -> None:
    with pytest.raises(RunnerError, match="cannot be made to mount") as refused:
        make_points([MountIntent(f"{places}/source", f"{places}/target/own/below")])
    assert refused.value.code == "setup_failed"
