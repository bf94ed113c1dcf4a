"""A machine that never answers cannot pile up questions."""

import asyncio
import itertools

import pytest

from moorage.control.logrelay import PENDING_MAX, LogRelay, Wanted
from moorage.domain.errors import Unavailable
from moorage.wire.agent import LogLines


class StillClock:
    """Time that does not pass."""

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


def relay() -> LogRelay:
    numbers = itertools.count(1)
    return LogRelay(StillClock(), lambda: f"q-{next(numbers)}")


async def test_questions_beyond_the_limit_are_refused_and_other_machines_are_not_held_up() -> None:
    log = relay()
    asking = [asyncio.create_task(log.fetch("mch-1", "w")) for _ in range(PENDING_MAX)]
    while len(log.pending("mch-1")) < PENDING_MAX:
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="lab-1 has 64 questions"):
        await log.fetch("mch-1", "w", name="lab-1")
    other = asyncio.create_task(log.fetch("mch-2", "w"))
    while not log.pending("mch-2"):
        await asyncio.sleep(0)
    assert log.answer("mch-2", log.pending("mch-2")[0].id, LogLines(lines=("a",)))
    assert (await other).lines == ("a",)
    for question in log.pending("mch-1"):
        assert log.answer("mch-1", question.id, LogLines())
    await asyncio.gather(*asking)
    assert log.pending("mch-1") == ()


async def test_a_question_is_announced_to_its_machine_after_it_can_be_found() -> None:
    log = relay()
    found: list[int] = []
    log.on_change = lambda machine: found.append(len(log.pending(machine)))
    asking = asyncio.create_task(log.fetch("mch-1", "w", Wanted(5, 7, 2, True)))
    while not found:
        await asyncio.sleep(0)
    assert found == [1]
    asked = log.pending("mch-1")[0]
    assert (asked.worker, asked.lines, asked.after, asked.epoch, asked.previous) == ("w", 5, 7, 2, True)
    assert log.answer("mch-1", asked.id, LogLines(lines=("x",), first_seq=8))
    assert not log.answer("mch-1", asked.id, LogLines())
    assert (await asking).first_seq == 8
