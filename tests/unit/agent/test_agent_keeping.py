"""What of ended workers stays on disk: logs by room and age, whoever still wants them; and what they wrote."""

import structlog

from moorage.agent import keeping
from moorage.agent.keeping import InUse, Keeping, default_budget, prune_outputs, remove_output

LOG = structlog.stdlib.get_logger("agent")
KIB, DAY_S = 1024, 86400.0


class HandClock:
    def __init__(self):
        self.at = 1_000_000.0

    def now(self):
        return self.at

    def monotonic(self):
        return self.at


class Home:
    """A directory of attempts, and what keeps them."""

    def __init__(self, base, budget_bytes=1 << 40, age_s=7 * DAY_S):
        self.base, self.clock, self.used = base, HandClock(), InUse(frozenset(), frozenset())
        self.settings = {"budget_bytes": budget_bytes, "age_s": age_s}
        self.keeping = self.again()

    def again(self):
        self.keeping = Keeping(self.base, self.clock, LOG, in_use=lambda: self.used, **self.settings)
        return self.keeping

    async def end(self, name, run="", *, failed=False, kib=100):
        folder = self.base / name / "1-aaaaaaaa"
        folder.mkdir(parents=True)
        (folder / "log.1").write_bytes(b"x" * kib * KIB)
        self.keeping.ended(folder, run or name, failed=failed)
        self.clock.at += 1
        await self.keeping.look()
        return folder

    @property
    def left(self):
        return [p.parent.name for p in sorted(self.base.glob("*/*"))]


async def test_any_number_of_logs_is_kept_as_long_as_there_is_room(tmp_path):
    home = Home(tmp_path)
    for n in range(300):
        await home.end(f"w{n:03}", kib=1)
    assert len(home.left) == 300


async def test_without_room_the_longest_ended_goes_first_and_its_emptied_folder_with_it(tmp_path):
    home = Home(tmp_path, budget_bytes=600 * KIB)
    for n in range(5):
        await home.end(f"w{n}")
        home.clock.at += keeping.WANTED_S
    await home.end("w5")
    assert home.left[-1] == "w5"
    assert "w0" not in home.left
    assert [p.name for p in sorted(tmp_path.iterdir())] == home.left


async def test_a_failed_attempt_outlives_those_that_succeeded_after_it(tmp_path):
    home = Home(tmp_path, budget_bytes=600 * KIB)
    await home.end("yesterday", failed=True)
    for n in range(20):
        home.clock.at += keeping.WANTED_S
        await home.end(f"w{n:02}")
    assert "yesterday" in home.left
    assert "w00" not in home.left


async def test_what_is_read_and_what_belongs_to_a_run_that_is_still_here_goes_last(tmp_path):
    home = Home(tmp_path, budget_bytes=600 * KIB)
    read, alive = await home.end("read"), await home.end("member", run="run-1")
    home.used = InUse(frozenset(), frozenset({"run-1"}))
    for n in range(10):
        home.clock.at += keeping.WANTED_S
        home.keeping.reading(read)
        await home.end(f"w{n:02}", failed=True)
    assert {"read", "member"} <= set(home.left)
    assert alive.exists()


async def test_what_has_only_just_ended_waits_for_its_reader(tmp_path):
    home = Home(tmp_path, budget_bytes=400 * KIB)
    await home.end("failed", failed=True)
    home.clock.at += keeping.WANTED_S
    await home.end("a")
    await home.end("b")
    await home.end("c")
    assert home.left == ["a", "b", "c"]


async def test_even_what_is_wanted_goes_when_nothing_else_is_left_to_go(tmp_path):
    home = Home(tmp_path, budget_bytes=300 * KIB)
    for n in range(10):
        await home.end(f"w{n}")
    assert home.left == ["w8", "w9"]


async def test_what_is_held_never_goes(tmp_path):
    home = Home(tmp_path, budget_bytes=300 * KIB)
    held = await home.end("held")
    home.used = InUse(frozenset({held}), frozenset())
    for n in range(10):
        home.clock.at += keeping.WANTED_S
        await home.end(f"w{n}")
    assert held.exists()


async def test_a_log_goes_when_it_is_too_old_unless_somebody_reads_it(tmp_path):
    home = Home(tmp_path)
    old, read = await home.end("old", failed=True), await home.end("read")
    home.clock.at += 7 * DAY_S + 1
    home.keeping.reading(read)
    await home.keeping.look()
    assert home.left == ["read"]
    assert not old.parent.exists()


async def test_an_agent_that_starts_again_knows_what_was_kept_how_it_ended_and_when(tmp_path):
    home = Home(tmp_path, budget_bytes=600 * KIB)
    for n in range(3):
        await home.end(f"w{n}")
    await home.end("failed", failed=True)
    (tmp_path / "failed").rename(tmp_path / "a-failed")  # first by name, so that only what it says keeps it
    home.clock.at += keeping.WANTED_S
    again = home.again()
    for kept in keeping._found(tmp_path):
        again._note(kept)
    await home.end("w3")
    await home.end("w4")
    assert "w0" not in home.left
    assert {"a-failed", "w3", "w4"} <= set(home.left)


async def test_a_directory_that_cannot_be_removed_is_named_and_the_others_are_removed(tmp_path, monkeypatch):
    import shutil

    home, remove = Home(tmp_path, age_s=10.0), shutil.rmtree
    stuck, other = await home.end("a"), await home.end("b")

    def refuse(folder):
        if folder == stuck:
            raise PermissionError("not yours")
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    home.clock.at += 20
    with structlog.testing.capture_logs() as told:
        home.keeping._log = structlog.get_logger()
        await home.keeping.look()
    assert not other.exists()
    assert [(t["folder"], t["log_level"]) for t in told] == [(str(stuck), "warning")]
    monkeypatch.undo()
    await home.keeping.look()
    assert not stuck.exists()


def test_without_a_setting_the_room_is_a_small_part_of_the_disk_and_never_more_than_10_gib(tmp_path, monkeypatch):
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total")
    for total, room in ((100 << 30, 5 << 30), (1 << 40, 10 << 30)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, total=total: usage(total))
        assert default_budget(tmp_path / "not" / "there") == room


def test_empty_output_goes_and_what_was_written_or_may_be_stays(tmp_path):
    empty, used, written = tmp_path / "run-1" / "0", tmp_path / "run-2" / "0", tmp_path / "run-3" / "1"
    for folder in (empty, used, written, tmp_path / "run-3" / "0"):
        folder.mkdir(parents=True)
    (written / "model").write_text("weights")
    prune_outputs(tmp_path, [used])
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("*/*")) == ["run-2/0", "run-3/1"]
    assert not empty.parent.exists()


def test_empty_output_goes_with_its_worker_alone(tmp_path):
    mine, sibling, other = tmp_path / "run-1" / "0", tmp_path / "run-1" / "1", tmp_path / "run-2" / "0"
    for folder in (mine, sibling, other):
        folder.mkdir(parents=True)
    remove_output(mine, [sibling])
    assert [mine.exists(), sibling.exists(), other.exists()] == [False, True, True]
    remove_output(other, [other])
    assert other.exists()
