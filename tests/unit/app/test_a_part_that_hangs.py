"""Which part the supervisor takes for hung: its own clock, real questions, and parts that answer or do not."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from moorage.app import processes
from moorage.app.hangs import Hangs, abort
from moorage.app.home import Home, write_private
from moorage.app.processes import Identity
from moorage.app.standing import standing, words
from moorage.app.supervisor import Part, Supervisor
from moorage.domain.errors import NotFound
from moorage.wire.alive import Answering

LIMIT_S = 60.0


class World:
    """A supervisor's questions, and one part of this very process that answers when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.now = 5000.0
        self.folder = folder
        self.told: list[str] = []
        self.part = Answering(folder / "server.json")
        me = processes.identify(os.getpid())
        assert me is not None
        self.me: Identity = me
        self.hangs = Hangs(folder, LIMIT_S, clock=lambda: self.now, tell=self.told.append)
        self.hangs.watch("server", me)

    def turns(self, seconds: float, *, answers: bool) -> list[tuple[str, float]]:
        """The loop's turns for so long, a second each; what is found hung ends them."""
        found: list[tuple[str, float]] = []
        until = self.now + seconds
        while self.now < until and not found:
            self.now += 1.0
            found = list(self.hangs.look())
            if answers:
                self.part.hear()
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.part.close()


def test_a_part_that_answers_is_left_alone_and_one_that_no_longer_does_has_hung(world: World):
    assert world.turns(10 * LIMIT_S, answers=True) == []
    assert world.turns(LIMIT_S - 1, answers=False) == []
    ((name, silent_s),) = world.turns(LIMIT_S, answers=False)
    assert name == "server"
    assert silent_s >= LIMIT_S


def test_questions_that_are_answered_late_are_answered(world: World):
    world.turns(20, answers=True)
    for _ in range(20):
        assert world.turns(LIMIT_S - 15, answers=False) == []
        world.part.hear()


def test_after_the_supervisor_was_stopped_itself_nobody_has_hung(world: World):
    world.turns(20, answers=True)
    assert world.turns(LIMIT_S - 5, answers=False) == []
    world.now += 7200.0
    assert list(world.hangs.look()) == []
    assert world.turns(LIMIT_S - 5, answers=False) == []
    assert world.turns(LIMIT_S, answers=False) != []


def test_an_answer_of_the_process_before_says_nothing_of_the_one_that_is_there_now(world: World):
    world.turns(20, answers=True)
    world.hangs.watch("server", Identity(world.me.pid + 1, world.me.started, world.me.boot_id))
    assert world.turns(5 * LIMIT_S, answers=True) == [], "it has never answered, so it is not judged"


def test_a_part_that_hung_before_its_supervisor_was_followed_by_another_is_found_by_that_one(world: World):
    world.turns(20, answers=True)
    assert world.hangs.first_answers() == ["server"], "which goes into the record"
    assert world.hangs.first_answers() == []
    next_one = Hangs(world.folder, LIMIT_S, clock=lambda: world.now, tell=world.told.append)
    next_one.watch("server", world.me, answered=True)
    world.hangs = next_one
    assert world.turns(LIMIT_S - 1, answers=False) == []
    assert world.turns(LIMIT_S, answers=False) != []


def test_a_part_of_which_there_is_none_is_not_asked(world: World):
    world.turns(20, answers=True)
    world.hangs.forget("server")
    assert world.turns(5 * LIMIT_S, answers=False) == []
    assert world.hangs.due() is None


def test_where_it_is_off_nobody_is_asked(tmp_path: Path):
    told: list[str] = []
    off = Hangs(tmp_path, 0.0, clock=lambda: 0.0, tell=told.append)
    assert (off.fileno(), off.due(), list(off.look()), told) == (None, None, [], [])


def test_where_there_can_be_no_socket_that_is_told_and_nobody_is_judged(tmp_path: Path):
    told: list[str] = []
    blind = Hangs(tmp_path / "none", LIMIT_S, clock=lambda: 0.0, tell=told.append)
    assert (blind.fileno(), list(blind.look())) == (None, [])
    assert "cannot be asked" in told[0]


def test_one_that_is_stopped_writes_its_stacks_and_ends_when_it_is_given_up():
    program = "import faulthandler, signal\nfaulthandler.enable()\nprint('ready', flush=True)\nsignal.pause()"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    identity = processes.identify(child.pid)
    assert identity is not None
    child.send_signal(signal.SIGSTOP)
    abort(identity)
    _, stacks = child.communicate(timeout=90)
    assert child.returncode == -signal.SIGABRT
    assert b"most recent call first" in stacks


def test_that_a_part_was_started_again_since_it_hung_is_recorded_and_told(tmp_path: Path):
    home = Home(tmp_path)
    home.make()
    with pytest.raises(NotFound, match="no `moor up` runs"):
        standing(home)
    me = processes.identify(os.getpid())
    supervisor = Supervisor(
        home, parts={"server": Part("server", "", identity=me, state="hung", silent_s=75.4, hangs=1)}
    )
    supervisor._died(supervisor.parts["server"], "killed by SIGABRT")
    supervisor.parts["server"].identity, supervisor.parts["server"].state = me, "running"
    supervisor.parts["server"].starts = 2
    supervisor.save()
    told = standing(home)
    (server,) = [part for part in told["parts"] if part["name"] == "server"]
    assert (server["state"], server["hangs"], server["reason"]["code"]) == ("running", 1, "part.hung")
    text = words(told, now=datetime.fromisoformat(server["ended_at"]).timestamp() + 120)
    assert "2m ago: The server hung: it answered nothing for 1m15s, and was ended (killed by SIGABRT)" in text
    assert str(home.log("server")) in text


def test_a_supervisor_that_is_gone_is_told_as_well(tmp_path: Path):
    home = Home(tmp_path)
    home.make()
    me = processes.identify(os.getpid())
    assert me is not None
    gone = {**me.to_wire(), "started": "1"}
    parts = {"gateway": {"identity": me.to_wire(), "state": "running"}, "agent": {"identity": gone, "state": "running"}}
    write_private(home.record, json.dumps({"supervisor": gone, "parts": parts}))
    told = standing(home)
    assert {part["name"]: part["state"] for part in told["parts"]} == {
        "server": "ended",
        "agent": "ended",
        "gateway": "running, without a supervisor",
    }
    assert "supervisor  gone" in words(told, now=0.0)
