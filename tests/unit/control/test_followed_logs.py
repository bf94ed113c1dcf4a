"""A followed log: one answer at a time is kept, each line is given once, and nobody waits for ever."""

import asyncio
import itertools

import pytest

from moorage.control import logrelay
from moorage.control.logrelay import SILENT_S, TIMEOUT_S, Followed, LogRelay, Wanted
from moorage.domain.errors import Unavailable
from moorage.wire.agent import LogLines


class HandClock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


def begun(**given: object) -> tuple[LogRelay, HandClock, Followed, list[str]]:
    clock, numbers, news = HandClock(), itertools.count(1), []
    relay = LogRelay(clock, lambda: f"q-{next(numbers)}")
    followed = relay.follow("mch-1", "wrk-1", Wanted(**given), lambda: news.append("news"))
    return relay, clock, followed, news


def lines(first: int, *texts: str, **given: object) -> LogLines:
    seqs = tuple(range(first, first + len(texts)))
    told = {"follows": True, "seqs": seqs, "times": (1.0,) * len(texts), **given}
    return LogLines(lines=texts, first_seq=first, next_seq=first + len(texts), **told)


async def test_answers_are_taken_one_at_a_time_and_the_next_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logrelay, "HOLD_S", 0.01)
    relay, _, followed, news = begun()
    assert await relay.deliver("mch-1", "q-1", lines(1, "a"))
    with pytest.raises(Unavailable):
        await relay.deliver("mch-1", "q-1", lines(2, "b"))
    taken = followed.take()
    assert taken is not None
    assert (taken.lines, len(news)) == (("a",), 1)
    assert await relay.deliver("mch-1", "q-1", lines(2, "b"))


async def test_what_is_sent_again_is_given_once() -> None:
    relay, _, followed, _ = begun(after=0)
    for answer, fresh in ((lines(1, "a", "b"), ("a", "b")), (lines(1, "a", "b"), ()), (lines(2, "b", "c"), ("c",))):
        assert await relay.deliver("mch-1", "q-1", answer)
        taken = followed.take()
        assert taken is not None
        assert taken.lines == fresh
    assert followed.request.after == 3


async def test_an_agent_that_begins_anew_is_asked_anew_from_where_the_reader_is() -> None:
    relay, _, followed, _ = begun()
    relay.sent(["q-1"])
    assert await relay.deliver("mch-1", "q-1", lines(7, "x"))
    followed.take()
    assert relay.pending("mch-1") == ()
    assert [q.after for q in relay.pending("mch-1", afresh=True)] == [7]


async def test_silence_is_told_and_its_end_too() -> None:
    relay, clock, followed, _ = begun()
    assert not followed.silent
    clock.at += TIMEOUT_S
    assert followed.silent
    assert await relay.deliver("mch-1", "q-1", lines(1))
    followed.take()
    assert not followed.silent
    clock.at += SILENT_S
    assert followed.silent
    assert len(relay.pending("mch-1")) == 1


async def test_nobody_answers_for_another_machine_nor_after_it_was_let_go() -> None:
    relay, _, followed, _ = begun()
    assert not await relay.deliver("mch-2", "q-1", lines(1, "forged"))
    followed.close()
    assert not await relay.deliver("mch-1", "q-1", lines(1, "late"))
    assert relay.pending("mch-1", afresh=True) == ()


async def test_an_agent_that_answers_once_is_asked_again_under_another_id() -> None:
    relay, clock, followed, _ = begun(after=0)
    relay.sent(["q-1"])
    assert await relay.deliver("mch-1", "q-1", lines(1, "a", follows=False))
    followed.take()
    assert relay.pending("mch-1") == ()
    clock.at += 1.0
    assert [(q.id, q.after) for q in relay.pending("mch-1")] == [("q-2", 1)]
