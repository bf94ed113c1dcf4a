"""Limits that a machine keeps itself, on a clock of the test's own: preparation, contact, a program's own heartbeat."""

import asyncio
import os

import pytest
from agent_clock import SteppedClock, settle

from moorage.agent.barrier import Barrier
from moorage.agent.beats import ProgramBeat
from moorage.agent.contact import Contact
from moorage.agent.ledger import Ledger
from moorage.agent.limits import NoProgress, ProgressLimit, until
from moorage.agent.setting_up import why_not
from moorage.domain.errors import ImageError
from moorage.wire.agent import Assignment, Launch


def begun(limit, work):
    return asyncio.ensure_future(limit.within(work))


async def test_a_preparation_that_stands_still_is_ended_and_named_by_its_step():
    clock = SteppedClock()
    limit = ProgressLimit(600.0, clock)
    ended = asyncio.Event()

    async def work():
        limit.at("filling the drive d")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = begun(limit, work())
    await clock.forward(599.9)
    assert not task.done()
    await clock.forward(0.1)
    with pytest.raises(NoProgress) as caught:
        await task
    assert ended.is_set()
    why = why_not(caught.value, Launch())
    assert (why.code, why.params) == ("prepare.timed_out", {"step": "filling the drive d", "d": 600.0})


async def test_what_moves_may_take_as_long_as_it_likes():
    clock = SteppedClock()
    limit = ProgressLimit(600.0, clock)
    end = asyncio.Event()
    task = begun(limit, end.wait())
    for _ in range(50):
        await clock.forward(599.0)
        limit.moved()
    assert not task.done()
    end.set()
    assert await task


async def test_what_has_a_limit_of_its_own_or_waits_for_others_is_not_ended_by_this_one():
    clock = SteppedClock()
    limit = ProgressLimit(600.0, clock)
    end = asyncio.Event()

    async def work():
        limit.off()
        await end.wait()
        limit.at("starting")
        await asyncio.Event().wait()

    task = begun(limit, work())
    await clock.forward(10_000.0)
    assert not task.done()
    end.set()
    await clock.forward(599.0)
    assert not task.done()
    await clock.forward(1.0)
    with pytest.raises(NoProgress, match="starting"):
        await task


async def test_a_stop_ends_the_work_under_the_limit():
    ended = asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = begun(ProgressLimit(600.0, SteppedClock()), work())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


def test_a_pull_that_stalled_is_told_with_the_limit_of_its_spec():
    cause = ImageError("nothing came", permanent=False, code="pull_stalled")
    why = why_not(cause, Launch(image="r/i:1", pull_stall_s=7.0))
    assert (why.code, why.params["d"]) == ("pull.stalled", 7.0)


async def test_a_moment_is_waited_for_on_the_clock_that_never_steps():
    clock = SteppedClock(monotonic=100.0)
    task = asyncio.ensure_future(until(clock, 160.0))
    await clock.forward(59.0, step_of_wall_s=86_400.0)
    assert not task.done()
    await clock.forward(1.0, step_of_wall_s=-86_400.0)
    assert task.done()


async def test_an_answered_heartbeat_puts_the_end_off_and_silence_brings_it(tmp_path):
    clock, ledger = SteppedClock(), Ledger(tmp_path / "ledger")
    contact = Contact(ledger, clock, "boot", {})
    lost = asyncio.ensure_future(contact.lost_for(600.0, since=0.0))
    await clock.forward(599.0)
    contact.answered(clock.monotonic())
    await clock.forward(599.0)
    assert not lost.done()
    await clock.forward(1.0)
    assert lost.done()
    await ledger.close()


async def test_work_that_was_taken_up_long_after_the_last_heartbeat_is_not_cut_off_by_that(tmp_path):
    clock, ledger = SteppedClock(), Ledger(tmp_path / "ledger")
    contact = Contact(ledger, clock, "boot", {})
    await clock.forward(9.0)
    lost = asyncio.ensure_future(contact.lost_for(5.0, since=clock.monotonic()))
    await clock.forward(4.9)
    assert not lost.done()
    await clock.forward(0.1)
    assert lost.done()
    await ledger.close()


async def test_an_agent_that_was_started_again_does_not_count_its_silence_anew(tmp_path):
    clock, ledger = SteppedClock(), Ledger(tmp_path / "ledger")
    contact = Contact(ledger, clock, "boot", {})
    contact.answered(clock.monotonic())
    await contact.save()
    await clock.forward(500.0)
    notes = ledger.recall().notes
    again = asyncio.ensure_future(Contact(ledger, clock, "boot", notes).lost_for(600.0, since=0.0))
    other_boot = asyncio.ensure_future(Contact(ledger, clock, "another boot", notes).lost_for(600.0, since=0.0))
    await clock.forward(100.0)
    assert (again.done(), other_boot.done()) == (True, False)
    other_boot.cancel()
    await ledger.close()


async def test_a_program_that_never_beat_by_itself_has_no_age_and_one_that_stopped_ages(tmp_path):
    clock, file = SteppedClock(), tmp_path / "heartbeat"
    beat = ProgramBeat(file, clock, since=clock.monotonic())
    assert beat.age_s() is None
    await clock.forward(10.0)
    touch(file, clock.now() - 4.0)
    assert beat.age_s() == pytest.approx(4.0)
    await clock.forward(10.0)
    assert beat.age_s() == pytest.approx(14.0)
    file.unlink()
    await clock.forward(10.0)
    assert beat.age_s() == pytest.approx(24.0)
    touch(file, clock.now())
    assert beat.age_s() == pytest.approx(0.0)


async def test_a_clock_that_is_set_makes_no_beat_older_than_the_last_look_nor_younger_than_now(tmp_path):
    clock, file = SteppedClock(), tmp_path / "heartbeat"
    beat = ProgramBeat(file, clock, since=clock.monotonic())
    touch(file, clock.now() - 3600.0)  # the program began ten seconds ago: its file cannot be an hour old
    await clock.forward(10.0)
    assert beat.age_s() == pytest.approx(10.0)
    touch(file, clock.now() + 3600.0)
    await clock.forward(5.0)
    assert beat.age_s() == 0.0
    await clock.forward(5.0, step_of_wall_s=-7200.0)
    assert beat.age_s() == pytest.approx(5.0)


def touch(path, at):
    path.touch()
    os.utime(path, (at, at))


async def test_the_barrier_keeps_back_until_the_first_go_and_gives_what_it_said():
    waits = assigned(barrier=True, go=False)
    barrier = Barrier(waits)
    passing = asyncio.ensure_future(barrier.passed())
    await settle()
    assert not barrier.open
    assert not passing.done()
    first = waits.model_copy(update={"go": True, "leader": "h:1"})
    barrier.go(first)
    barrier.go(waits.model_copy(update={"go": True, "leader": "other:2"}))
    assert (await passing).leader == "h:1"


async def test_who_stops_waiting_at_the_barrier_does_not_open_it():
    barrier = Barrier(assigned(barrier=True, go=False))
    passing = asyncio.ensure_future(barrier.passed())
    await settle()
    passing.cancel()
    await settle()
    assert not barrier.open


@pytest.mark.parametrize(("barrier", "go"), [(False, True), (False, False), (True, True)])
async def test_the_way_is_free_without_a_barrier_and_with_a_go(barrier, go):
    assert Barrier(assigned(barrier=barrier, go=go)).open


def assigned(*, barrier, go):
    return Assignment(worker="w", run="r", epoch=1, go=go, launch=Launch(barrier=barrier))
