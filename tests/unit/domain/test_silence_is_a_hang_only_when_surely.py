"""A process is taken for hung only after long silence that its asker was awake to see."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.silence import Silence

LIMIT_S = 60.0


class Asker:
    """Asks and looks as a supervisor's loop does, on a clock of the test's."""

    def __init__(self, *, answered: bool = True) -> None:
        self.silence = Silence(LIMIT_S)
        self.now = 1000.0
        if answered:
            self.silence.heard()

    def turn(self) -> float | None:
        """One turn of the loop."""
        hung = self.silence.look(self.now)
        if hung is None and self.now >= self.silence.due(self.now):
            self.silence.asked(self.now)
        return hung

    def silent(self, seconds: float, step_s: float = 1.0) -> float | None:
        """Turn for so long; the silence that was judged a hang, if one was."""
        until = self.now + seconds
        hung = self.turn()
        while hung is None and self.now < until:
            self.now = min(until, self.now + step_s)
            hung = self.turn()
        return hung


def test_a_process_that_answered_and_answers_no_more_has_hung_at_the_limit_and_not_before():
    asker = Asker()
    assert asker.silent(LIMIT_S - 0.1) is None
    assert asker.silent(1.0) is not None


def test_one_late_answer_is_an_answer_and_the_limit_begins_anew():
    asker = Asker()
    assert asker.silent(LIMIT_S - 1) is None
    asker.silence.heard()
    assert asker.silent(LIMIT_S - 1) is None


def test_a_process_that_answers_each_question_half_a_minute_late_for_hours_is_never_hung():
    asker = Asker()
    for _ in range(500):
        assert asker.silent(30.0) is None
        asker.silence.heard()


def test_a_process_is_not_judged_before_its_first_answer():
    asker = Asker(answered=False)
    assert asker.silent(20 * LIMIT_S) is None
    asker.silence.heard()
    assert asker.silent(LIMIT_S + asker.silence.every_s + 1) is not None


def test_after_a_pause_of_the_asker_itself_the_silence_before_it_does_not_count():
    asker = Asker()
    assert asker.silent(LIMIT_S - 1) is None
    asker.now += 3600.0  # stopped, starved or frozen, as the process may have been with it
    assert asker.silent(LIMIT_S - 1) is None
    assert asker.silent(2.0) is not None, "it is judged by what was seen since"


def test_an_asker_that_is_always_late_judges_nobody():
    asker = Asker()
    assert asker.silent(50 * LIMIT_S, step_s=asker.silence.every_s * 2) is None


def test_a_process_that_cannot_be_asked_is_not_judged():
    asker = Asker()
    for _ in range(200):
        asker.now += 1.0
        assert asker.silence.look(asker.now) is None
        if asker.now >= asker.silence.due(asker.now):
            asker.silence.not_asked(asker.now)
    assert asker.silent(LIMIT_S - 1) is None, "its silence begins with the first question"


def test_few_unanswered_questions_prove_nothing_however_old_they_are():
    silence = Silence(LIMIT_S)
    silence.heard()
    now = 0.0
    for _ in range(3):
        silence.asked(now)
    while now < 10 * LIMIT_S:
        now += 1.0
        assert silence.look(now) is None


@given(st.lists(st.tuples(st.floats(0.01, 40.0), st.booleans()), max_size=300))
def test_whatever_happens_a_hang_is_a_whole_limit_of_seen_silence_since_the_last_answer(
    turns: list[tuple[float, bool]],
):
    asker = Asker()
    seen_since = asker.now
    for pause_s, answers in turns:
        asker.now += pause_s
        if answers:
            asker.silence.heard()
        if answers or pause_s > asker.silence.every_s * 1.5:
            seen_since = asker.now
        if asker.turn() is not None:
            assert asker.now - seen_since >= LIMIT_S - asker.silence.every_s * 1.5
            assert not answers
            return
