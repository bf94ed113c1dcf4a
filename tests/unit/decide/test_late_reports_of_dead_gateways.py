"""The ledger of limits and processes of which nothing was heard while they lived."""

from moorage.decide.serving.slices import WINDOW_S, Ledger, Want
from moorage.domain.incarnations import is_before, named

OLD, DEAD, LIVE = (named(second * 10**9, "0000abcd") for second in (100, 200, 201))
WANT = [Want("namespace/n", "requests_per_minute", share=0, used=0, wanted=10)]


def told(ledger: Ledger, incarnation: str, now: float, sequence: int = 1) -> list[int]:
    answers = ledger.report("g", incarnation, WANT, lambda subject, resource: 100, now, sequence=sequence)
    return [answer.share for answer in answers]


def test_a_report_that_a_dead_process_sent_moves_nothing_once_its_successor_was_heard() -> None:
    ledger = Ledger()
    assert told(ledger, OLD, 0.0) == [100]
    (share,) = told(ledger, LIVE, 1.0)
    assert told(ledger, DEAD, 2.0) == [], "it began before the one that reports, and is none after it"
    assert told(ledger, LIVE, 3.0, sequence=2) == [share], "the true one is still heard"


def test_a_process_whose_clock_was_set_back_is_heard_once_the_one_before_it_has_left_the_windows() -> None:
    ledger = Ledger()
    told(ledger, LIVE, 0.0)
    assert told(ledger, DEAD, WINDOW_S - 1) == []
    assert len(told(ledger, DEAD, WINDOW_S + 1)) == 1


def test_only_names_that_tell_a_time_are_ordered() -> None:
    assert is_before(DEAD, LIVE)
    assert not is_before(LIVE, DEAD)
    assert not is_before(LIVE, LIVE)
    assert not is_before("00ff", LIVE)
    assert not is_before(DEAD, "ffffffffffffffff")
