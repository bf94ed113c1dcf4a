"""What of ended workers stays on disk: the newest logs, and what they wrote; never what is in use."""

import os

import structlog

from moorage.agent.keeping import prune_logs, prune_outputs

LOG = structlog.stdlib.get_logger("agent")


def made(path, at=0):
    path.mkdir(parents=True)
    os.utime(path, (at, at))
    return path


def test_the_newest_attempts_of_all_workers_together_are_kept_and_emptied_workers_go(tmp_path):
    folders = [made(tmp_path / f"wrk-{n}" / "1-aaaaaaaa", at=n) for n in range(6)]
    prune_logs(tmp_path, [folders[0]], 2, LOG)
    assert sorted(tmp_path.glob("*/*")) == [folders[0], folders[4], folders[5]]
    assert sorted(p.name for p in tmp_path.glob("*")) == ["wrk-0", "wrk-4", "wrk-5"]


def test_a_directory_that_cannot_be_removed_is_named_and_the_others_are_removed(tmp_path, monkeypatch):
    import shutil

    stuck, other = made(tmp_path / "a" / "1-aaaaaaaa", at=1), made(tmp_path / "b" / "1-aaaaaaaa", at=2)
    remove = shutil.rmtree

    def refuse(folder):
        if folder == stuck:
            raise PermissionError("not yours")
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with structlog.testing.capture_logs() as told:
        prune_logs(tmp_path, [], 0, structlog.get_logger())
    assert not other.exists()
    assert [(t["folder"], t["log_level"]) for t in told] == [(str(stuck), "warning")]


def test_empty_output_goes_with_its_worker_and_what_was_written_or_may_be_stays(tmp_path):
    empty, used = made(tmp_path / "run-1" / "0"), made(tmp_path / "run-2" / "0")
    written = made(tmp_path / "run-3" / "1")
    (written / "model").write_text("weights")
    made(tmp_path / "run-3" / "0")
    prune_outputs(tmp_path, [used])
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("*/*")) == ["run-2/0", "run-3/1"]
    assert not empty.parent.exists()
