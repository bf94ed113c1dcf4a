"""While an apply cannot reach a control plane, its line is said once and not with every further try."""

import io
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cli.commands.apply import _sending
from moorage.cli.failures import NotAcknowledged
from moorage.cli.progress import Progress


@dataclass
class Told:
    """What a command's session is to the line."""

    stream: io.StringIO = field(default_factory=io.StringIO)
    on_seen: Any = None

    def progress(self) -> Progress:
        return Progress(self.stream)


def lines(*tries: bool) -> list[str]:
    session = Told()
    with _sending(session, SimpleNamespace(name="gemma"), "", None):  # type: ignore[arg-type]  # all that it asks
        for may_be_seen in tries:
            session.on_seen(may_be_seen)
    return session.stream.getvalue().splitlines()


def test_one_that_is_on_its_way_says_so() -> None:
    assert lines(True) == ["gemma: sending; waiting for the control plane's answer"]


def test_tries_that_are_refused_one_after_the_other_are_one_line() -> None:
    assert lines(True, False, True, False, True, False) == [
        "gemma: sending; waiting for the control plane's answer",
        "gemma: trying to send; no control plane has answered so far",
    ]


@pytest.mark.parametrize(("tries", "maybe"), [((True,), True), ((True, False), False), ((True, False, True), True)])
def test_ctrl_c_still_knows_whether_the_last_try_may_have_been_seen(tries: tuple[bool, ...], maybe: bool) -> None:
    session = Told()

    def interrupted() -> None:
        with _sending(session, SimpleNamespace(name="gemma"), "moor status gemma", "k"):  # type: ignore[arg-type]
            for may_be_seen in tries:
                session.on_seen(may_be_seen)
            raise KeyboardInterrupt

    with pytest.raises(NotAcknowledged) as left:
        interrupted()
    assert ("may have been sent" in str(left.value)) is maybe
