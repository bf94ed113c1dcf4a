"""A copy of a drive is there whole or not at all."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from moorage.agent.drives import DriveBroken, copy_at, fill, kept_at, location, pack, remove, set_aside


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    folder = tmp_path / "drive"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "weights").write_bytes(os.urandom(3_000_000))
    (folder / "empty").mkdir()
    (folder / "note").write_text("hello")
    (folder / "link").symlink_to("note")
    os.mkfifo(folder / "fifo")
    return folder


async def pieces(folder: Path, *, size: int | None = None) -> AsyncIterator[bytes]:
    """The stream, cut off after `size` bytes."""
    left = size if size is not None else 1 << 60
    async for piece in pack(folder):
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


def told() -> None:
    """Nobody listens."""


async def test_a_copy_has_everything_that_the_drive_has(drive: Path, tmp_path: Path) -> None:
    moves: list[int] = []
    target = tmp_path / "copies" / "drive"
    await fill(target, pack(drive), lambda: moves.append(1))
    found = {str(p.relative_to(target)): p for p in target.rglob("*")}
    assert sorted(found) == ["a", "a/b", "a/b/weights", "empty", "link", "note"]
    assert found["a/b/weights"].read_bytes() == (drive / "a" / "b" / "weights").read_bytes()
    assert found["link"].read_text() == "hello"
    assert len(moves) > 1


async def test_an_empty_drive_has_an_empty_copy(tmp_path: Path) -> None:
    (tmp_path / "drive").mkdir()
    await fill(tmp_path / "copy", pack(tmp_path / "drive"), told)
    assert list((tmp_path / "copy").iterdir()) == []


@pytest.mark.parametrize("size", [0, 1, 511, 512, 1024, 1_500_000, 3_000_000])
async def test_a_copy_that_broke_off_is_never_seen_and_can_be_made_again(
    drive: Path, tmp_path: Path, size: int
) -> None:
    target = tmp_path / "copies" / "drive"
    with pytest.raises(DriveBroken, match="broke off"):
        await fill(target, pieces(drive, size=size), told)
    assert not target.exists()
    await fill(target, pack(drive), told)
    assert (target / "note").read_text() == "hello"


async def test_a_stream_without_its_last_words_is_no_copy(drive: Path, tmp_path: Path) -> None:
    """An end that looks whole to whoever unpacks: the archive's own end mark, and no word on what was sent."""
    import io
    import tarfile

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w|") as made:
        made.add(drive / "note", arcname="note")

    async def stream() -> AsyncIterator[bytes]:
        yield archive.getvalue()

    with pytest.raises(DriveBroken, match="broke off after 1 files"):
        await fill(tmp_path / "copy", stream(), told)
    assert not (tmp_path / "copy").exists()


async def test_an_entry_that_leads_out_of_the_copy_is_refused(tmp_path: Path) -> None:
    import io
    import tarfile

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w|") as made:
        entry = tarfile.TarInfo("../outside")
        entry.size = 4
        made.addfile(entry, io.BytesIO(b"oops"))

    async def stream() -> AsyncIterator[bytes]:
        yield archive.getvalue()

    with pytest.raises(DriveBroken):
        await fill(tmp_path / "copies" / "drive", stream(), told)
    assert not (tmp_path / "copies" / "outside").exists()
    assert not (tmp_path / "outside").exists()


def test_copies_of_runs_that_are_over_go_and_drives_stay(tmp_path: Path) -> None:
    for folder in (copy_at(tmp_path, "run-1", "d"), copy_at(tmp_path, "run-2", "d"), kept_at(tmp_path, "default", "d")):
        folder.mkdir(parents=True)
    aside = set_aside(tmp_path, ["run-2"])
    assert not copy_at(tmp_path, "run-1", "d").exists()
    copy_at(tmp_path, "run-1", "d").mkdir(parents=True)  # it comes back before the old one is removed
    assert set_aside(tmp_path, ["run-1", "run-2"]) == aside, "what a killed agent had set aside is found again"
    remove(aside, structlog.get_logger())
    assert sorted(p.name for p in (tmp_path / "copies").iterdir()) == ["run-1", "run-2"]
    assert copy_at(tmp_path, "run-2", "d").exists()
    assert kept_at(tmp_path, "default", "d").exists()


def test_the_data_location_says_what_is_free(tmp_path: Path) -> None:
    found = location(tmp_path / "data")
    assert found["path"] == str(tmp_path / "data")
    assert 0 < found["free_bytes"] <= found["total_bytes"]
