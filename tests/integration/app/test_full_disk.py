"""A full disk under the home takes down nothing that lives, hinders no stop, and is named."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path

import pytest
from test_supervisor import ENV, HERE, PATIENCE_S, Stage, until

from moorage.app import disk, processes, up
from moorage.app.home import Home, write_private
from moorage.app.settings import load
from moorage.app.supervisor import LOG_LIMIT_BYTES, bound_logs
from moorage.cli.progress import Progress
from moorage.domain.errors import Unavailable

SIZE_BYTES = 24 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own of 24 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def stage(small: Path) -> Iterator[Stage]:
    made = Stage(small)
    yield made
    made.close()


def fill(place: Path) -> Path:
    """Take all the room there is; removing the file gives it back."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with pytest.raises(OSError, match="No space left"):
                _write_for_ever(file, bytes(size))
    assert disk.is_full(place)
    return filler


def _write_for_ever(file: RawIOBase, data: bytes) -> None:
    while True:
        file.write(data)


def gateways(stage: Stage) -> set[int]:
    return {identity.pid for identity in processes.find_by_command(stage.home.command("gateway"))}


@pytest.mark.slow
def test_a_supervisor_goes_on_starting_parts_on_a_full_disk_and_records_them_when_there_is_room(
    stage: Stage, small: Path
):
    supervisor = stage.start()
    before = stage.all_running()
    filler = fill(small)
    for _ in range(2):
        old = gateways(stage)
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        until(lambda old=old: gateways(stage) - old, "the next gateway")
    assert supervisor.poll() is None
    assert stage.parts()["gateway"]["identity"]["pid"] == before["gateway"].pid  # the record is of before
    (now,) = gateways(stage)
    filler.unlink()
    until(lambda: stage.parts()["gateway"]["identity"]["pid"] == now, "the record")


def test_stopping_needs_no_room(stage: Stage, small: Path):
    supervisor = stage.start()
    before = stage.all_running()
    fill(small)
    supervisor.terminate()
    assert supervisor.wait(PATIENCE_S) == 0
    assert not any(processes.alive(identity) for identity in before.values())
    assert [path.name for path in small.glob("home/.*")] == []  # no halves of files either


def test_down_without_a_supervisor_needs_no_room(stage: Stage, small: Path):
    supervisor = stage.start()
    before = stage.all_running()
    supervisor.kill()
    supervisor.wait()
    fill(small)
    assert up.down(stage.home, Progress(quiet=True), keep=False)
    assert not any(processes.alive(identity) for identity in before.values())


def test_up_on_a_full_disk_names_the_disk_and_what_to_do(small: Path):
    home = Home(small / "home")
    home.make()
    fill(small)
    env = {"MOORAGE_HOME": str(home.root), "MOORAGE_API": "127.0.0.1:1717", "MOORAGE_GATEWAY": "127.0.0.1:1718"}
    with pytest.raises(Unavailable, match=f"no space left on {small}") as caught:
        up.up(home, load(env), Progress(quiet=True), timeout_s=5)
    assert caught.value.remedy == "free some, then `moor up`"


def test_what_could_not_be_written_leaves_the_former_file_and_no_half(small: Path):
    path = small / "kept"
    write_private(path, "first")
    fill(small)
    with pytest.raises(OSError, match="No space left"):
        write_private(path, "second" * 10000)
    assert path.read_text() == "first"
    assert {each.name for each in small.iterdir()} == {"kept", "filler"}


def test_a_full_log_is_emptied_where_there_is_no_room_to_keep_it(small: Path):
    home = Home(small / "home")
    home.make()
    home.log("server").write_bytes(b"x" * (LOG_LIMIT_BYTES + 1))
    fill(small)
    bound_logs(home)
    assert home.log("server").stat().st_size == 0
    assert not home.log("server").with_suffix(".log.1").exists()


def test_a_supervisor_that_never_could_write_its_record_is_found(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    command = [sys.executable, str(HERE / "supervise.py"), str(stage.home.root)]
    monkeypatch.setattr(up, "_supervisor_command", lambda home: command)
    supervisor = subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL)
    stage.supervisors.append(supervisor)
    stage.all_running()
    stage.home.record.unlink()
    found = up.running_supervisor(stage.home)
    assert found is not None
    assert found.pid == supervisor.pid
