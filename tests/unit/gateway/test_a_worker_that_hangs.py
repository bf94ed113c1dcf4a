"""Which of its processes a gateway's master takes for hung, and how it ends that one; the clock is the test's."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from moorage.gateway import crew, orders
from moorage.gateway.crew import ENDING, HUNG, SERVING, STARTING, Adopted, Worker
from moorage.gateway.hangs import Hangs
from moorage.gateway.orders import Lines, Order

LIMIT_S = 60.0
ORDER = Order(settings={}, gateway_id="g", address="127.0.0.1:1", master=1)
PROGRAM = "import faulthandler, signal\nfaulthandler.enable()\nprint('ready', flush=True)\nsignal.pause()"


class Served:
    """A worker as its master sees it, of which the test says what it answers."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-S", "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == b"ready\n"
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self.worker = Worker(ORDER, self.child, ours, state=SERVING)
        self.lines = Lines()
        self.now = 1000.0
        self.hangs = Hangs(lambda: self.now)

    def turns(self, seconds: float, *, answers: bool, limit_s: float = LIMIT_S) -> None:
        """The master's turns for so long, a second each."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.hangs.look([self.worker], limit_s)
            if answers:
                self.answer()

    def answer(self) -> None:
        """As the worker's loop does, to all that was asked."""
        for said in self.lines.feed(self.read()):
            assert said == {"do": orders.ASK}
            self.theirs.send(orders.line(said=orders.LIVES))
        self.worker.hear()

    def read(self) -> bytes:
        try:
            return self.theirs.recv(65536)
        except BlockingIOError:
            return b""

    def end(self) -> bytes:
        """Wait for the process; what it wrote."""
        return self.child.communicate(timeout=90)[1]


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.child.kill()
    made.child.communicate()
    made.theirs.close()
    made.worker.close()


def test_a_worker_that_answers_is_left_alone(served: Served):
    served.turns(10 * LIMIT_S, answers=True)
    assert (served.worker.state, served.child.poll()) == (SERVING, None)


def test_a_worker_that_is_stopped_writes_its_stacks_ends_and_is_said_to_have_hung(served: Served):
    served.turns(20, answers=True)
    served.child.send_signal(signal.SIGSTOP)
    served.turns(LIMIT_S - 1, answers=False)
    assert served.worker.state == SERVING
    served.turns(15, answers=False)
    assert served.worker.state == HUNG
    assert served.worker.kill_at is not None
    assert b"most recent call first" in served.end()
    how = served.worker.ended()
    assert how is not None
    assert how.startswith("hung (no answer for 6")
    assert how.endswith("killed by SIGABRT")
    assert crew.safer({"accelerators": "auto"}, how, served=True) is None, "its accelerators are not to blame for that"


def test_a_master_that_was_away_itself_judges_nobody(served: Served):
    served.turns(20, answers=True)
    served.turns(LIMIT_S - 5, answers=False)
    served.now += 3600.0
    served.turns(LIMIT_S - 5, answers=False)
    assert served.worker.state == SERVING


def test_a_worker_that_hangs_as_soon_as_it_serves_has_hung_all_the_same(served: Served):
    served.turns(LIMIT_S + 15, answers=False)
    assert served.worker.state == HUNG


def test_a_worker_of_another_master_may_know_no_such_question_and_is_judged_from_its_first_answer_on(served: Served):
    served.worker.child = Adopted(served.child.pid, served.worker.channel)
    served.turns(10 * LIMIT_S, answers=False)
    assert (served.worker.state, served.child.poll()) == (SERVING, None)
    served.answer()
    served.turns(LIMIT_S + 15, answers=False)
    assert served.worker.state == HUNG
    assert served.child.wait(90) == -signal.SIGKILL


@pytest.mark.parametrize("state", [STARTING, ENDING])
def test_one_that_starts_or_ends_has_limits_of_its_own_and_is_not_asked(served: Served, state: str):
    served.worker.state = state
    served.turns(5 * LIMIT_S, answers=False)
    assert (served.worker.state, served.read(), served.hangs.due()) == (state, b"", [])


def test_nobody_is_asked_where_it_is_off_and_a_reload_may_set_another_limit(served: Served):
    served.turns(5 * LIMIT_S, answers=False, limit_s=0.0)
    assert (served.read(), served.hangs.due()) == (b"", [])
    served.turns(10, answers=True, limit_s=6.0)
    served.turns(9, answers=False, limit_s=6.0)
    assert served.worker.state == HUNG


def test_a_worker_whose_end_comes_sooner_is_not_given_more_time_by_a_stop(served: Served):
    served.worker.retire(5.0)
    before = served.worker.kill_at
    served.worker.retire(500.0)
    assert served.worker.kill_at == before
