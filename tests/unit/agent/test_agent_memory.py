"""The ledger and the outbox: what they were told is there after a restart, in order, once."""

import random
import sqlite3

import pytest

from moorage.agent.backoff import CAP_S, Backoff
from moorage.agent.ledger import Attempt, Ledger, LedgerUnusable
from moorage.agent.outbox import RESERVED, Outbox
from moorage.agent.words import picked_up, running


class FixedClock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def attempt(**given):
    return Attempt(**{"worker": "w", "epoch": 1, "cookie": "c", "folder": "/f", "assignment": "{}", **given})


async def reopened(ledger: Ledger, path) -> Ledger:
    await ledger.close()
    return Ledger(path)


async def test_an_attempt_and_its_epoch_are_there_after_a_restart(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    await ledger.intend(attempt(epoch=4, port=18001))
    ledger = await reopened(ledger, path)
    known = ledger.recall()
    assert known.attempts == (attempt(epoch=4, port=18001),)
    assert known.epochs == {"w": 4}
    await ledger.forget("w")
    ledger = await reopened(ledger, path)
    assert ledger.recall().attempts == ()
    assert ledger.recall().epochs == {"w": 4}
    await ledger.close()


async def test_an_epoch_never_goes_back(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    await ledger.saw("w", 5)
    await ledger.saw("w", 3)
    assert ledger.recall().epochs == {"w": 5}
    await ledger.close()


async def test_a_file_that_is_no_ledger_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "ledger"
    path.write_text("this is not a database, and long enough to be looked at as one " * 100)
    with pytest.raises(LedgerUnusable) as caught:
        Ledger(path)
    assert caught.value.remedy


async def test_a_write_that_fails_is_told_to_whoever_asked_and_the_next_one_works(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    with pytest.raises(LedgerUnusable):
        await ledger._write([("INSERT INTO nowhere VALUES (1)", ())])
    await ledger.saw("w", 1)
    assert ledger.recall().epochs == {"w": 1}
    await ledger.close()


async def test_reports_not_acknowledged_come_again_with_the_same_numbers(tmp_path):
    path, clock = tmp_path / "ledger", FixedClock()
    ledger = Ledger(path)
    outbox = Outbox(ledger, clock)
    outbox.restore((), 0)
    it = outbox.add(attempt(), [picked_up()])
    it = outbox.add(it, [running()])
    outbox.confirm(1)
    await outbox.flushed()
    ledger = await reopened(ledger, path)
    clock.at += 60
    again = Outbox(ledger, clock)
    known = ledger.recall()
    again.restore(known.outbox, max(a.last_seq for a in known.attempts))
    batch = again.batch("m", "i")
    assert [(r.seq, r.steps[0].to, r.steps[0].age_s) for r in batch.reports] == [(2, "Running", 60.0)]
    assert again.acknowledged == 1
    assert known.attempts[0].state == "Running"
    await ledger.close()


async def test_numbers_go_on_above_what_the_control_plane_holds(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    outbox = Outbox(ledger, FixedClock())
    outbox.restore((), 0)
    outbox.renumber(8)
    assert outbox.add(attempt(), [picked_up()]).last_seq == 8
    await outbox.flushed()
    await ledger.close()


async def test_a_number_that_may_have_gone_out_unwritten_is_never_given_to_another_report(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    first = Outbox(ledger, FixedClock())
    first.restore((), 0)
    await first.reserve()
    ledger = await reopened(ledger, path)  # killed: what was given out since is not on disk
    used = first.last + 4_000
    second = Outbox(ledger, FixedClock())
    known = ledger.recall()
    second.restore(known.outbox, 0, int(known.notes[RESERVED]))
    await second.reserve()
    assert second.add(attempt(), [picked_up()]).last_seq > used
    await second.flushed()
    await ledger.close()


async def test_what_the_control_plane_has_already_is_not_sent_again(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    outbox = Outbox(ledger, FixedClock())
    outbox.restore((), 0)
    it = outbox.add(attempt(), [picked_up()])
    outbox.add(it, [running()])
    outbox.renumber(2)
    assert [r.seq for r in outbox.batch("m", "i").reports] == [2]
    await outbox.flushed()
    assert [seq for seq, _ in ledger.recall().outbox] == [2]
    await ledger.close()


async def test_a_ledger_that_cannot_be_written_is_not_passed_over(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    await ledger.note({"a": "b"})
    ledger._thread.submit(ledger._db.execute, "DROP TABLE outbox").result()
    outbox = Outbox(ledger, FixedClock())
    outbox.restore((), 0)
    outbox.add(attempt(), [picked_up()])
    with pytest.raises(LedgerUnusable):
        await outbox.broken
    await ledger.close()


async def test_the_ledger_keeps_credentials_from_other_users(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    assert path.stat().st_mode & 0o077 == 0
    mode = sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone()
    assert mode == ("wal",)
    await ledger.close()


def test_waits_grow_to_a_bound_and_begin_anew_after_an_answer():
    backoff = Backoff(random.Random(1))
    waits = [backoff.next_s() for _ in range(12)]
    assert all(0 < w <= CAP_S for w in waits)
    assert waits[0] <= 0.05
    assert waits[-1] >= CAP_S / 2
    backoff.reset()
    assert backoff.next_s() <= 0.05


async def test_a_ledger_of_an_earlier_version_is_taken_over_with_what_it_holds(tmp_path):
    path = tmp_path / "ledger"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE attempts (worker TEXT PRIMARY KEY, epoch INTEGER NOT NULL, cookie TEXT NOT NULL, folder TEXT"
            " NOT NULL, assignment TEXT NOT NULL, digest TEXT NOT NULL, port INTEGER, state TEXT NOT NULL, ready"
            " INTEGER NOT NULL, stop TEXT, exit_code INTEGER, gone INTEGER NOT NULL, last_seq INTEGER NOT NULL)"
        )
        db.execute("INSERT INTO attempts VALUES ('w', 3, 'c', '/f', '{}', '', 18001, 'Running', 1, NULL, NULL, 0, 9)")
    db.close()
    ledger = Ledger(path)
    (held,) = ledger.recall().attempts
    assert (held.worker, held.epoch, held.port, held.rendezvous, held.started) == ("w", 3, 18001, None, None)
    await ledger.intend(attempt(worker="other", rendezvous=18002, started=5.5))
    other = next(a for a in ledger.recall().attempts if a.worker == "other")
    assert (other.rendezvous, other.started) == (18002, 5.5)
    await ledger.close()
