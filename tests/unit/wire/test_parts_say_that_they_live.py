"""A part answers its supervisor whenever its loop turns, and whoever is not there cannot be asked."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.wire.alive import Answer, Answering, Asking


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    deep = tmp_path / ("a folder with a name that is longer than a path of a socket may be " * 3)
    deep.mkdir()
    return deep


@pytest.fixture
def asking(folder: Path) -> Iterator[Asking]:
    made = Asking(folder)
    yield made
    made.close()


@pytest.fixture
def part(folder: Path) -> Iterator[Answering]:
    made = Answering(folder / "server.json")
    yield made
    made.close()


def test_a_part_answers_with_its_name_and_pid(asking: Asking, part: Answering):
    assert asking.ask("server")
    assert list(asking.answers()) == []
    part.hear()
    assert list(asking.answers()) == [Answer("server", os.getpid())]


def test_nobody_else_may_ask_or_answer(folder: Path, asking: Asking, part: Answering):
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "server.alive": 0o600,
        "supervisor.alive": 0o600,
    }


def test_nobody_is_asked_where_no_part_ever_was(asking: Asking):
    assert not asking.ask("agent")


def test_a_part_that_is_gone_cannot_be_asked(asking: Asking, folder: Path):
    gone = Answering(folder / "agent.json")
    gone.close()
    assert not asking.ask("agent")


def test_a_part_that_takes_no_question_is_still_asked_however_many_wait(asking: Asking, part: Answering):
    assert all(asking.ask("server") for _ in range(2000))
    part.hear()
    assert set(asking.answers()) == {Answer("server", os.getpid())}


def test_a_part_outlives_its_supervisor_and_answers_the_next_one(folder: Path, part: Answering):
    first = Asking(folder)
    first.ask("server")
    first.close()
    part.hear()
    second = Asking(folder)
    second.ask("server")
    part.hear()
    assert list(second.answers()) == [Answer("server", os.getpid())]
    second.close()


def test_a_part_that_starts_again_takes_the_place_of_the_one_before(asking: Asking, folder: Path, part: Answering):
    next_one = Answering(folder / "server.json")
    asking.ask("server")
    part.hear()
    assert list(asking.answers()) == []
    next_one.hear()
    assert len(list(asking.answers())) == 1
    next_one.close()


def test_a_question_of_another_process_is_answered_over_there(asking: Asking, folder: Path):
    program = (
        "import select, sys; from pathlib import Path; from moorage.wire.alive import Answering\n"
        "part = Answering(Path(sys.argv[1])); print('ready', flush=True)\n"
        "select.select([part], [], []); part.hear()"
    )
    child = subprocess.Popen([sys.executable, "-c", program, folder / "gateway.json"], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert asking.ask("gateway")
        assert select.select([asking], [], [], 90.0)[0]
        assert list(asking.answers()) == [Answer("gateway", child.pid)]
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
