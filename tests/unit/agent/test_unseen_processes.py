"""A process that cannot be looked at is told by what the system says, and as another user's only where it is."""

import errno
import os

import pytest

from moorage.agent import claims
from moorage.runners.shimming.kernel import slurp


def refuse(monkeypatch: pytest.MonkeyPatch, code: int, uid: int) -> None:
    """Let /proc refuse every environment, and say that all runs under this uid."""

    def read(path: str) -> bytes:
        if path.endswith("/environ"):
            raise OSError(code, os.strerror(code), path)
        return f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n".encode() if path.endswith("/status") else slurp(path)

    monkeypatch.setattr(claims, "slurp", read)


def told() -> str | None:
    answer = claims.identify(os.getpid(), None)
    assert not answer.found
    return answer.error


def test_one_of_the_same_user_is_never_said_to_be_another_s(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EACCES, os.geteuid())
    assert told() == f"pid {os.getpid()} cannot be looked at: permission denied"


def test_one_of_another_user_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EACCES, os.geteuid() + 1)
    assert told() == f"pid {os.getpid()} belongs to another user: it could be neither looked at nor ended"


def test_what_is_no_question_of_permission_is_told_in_the_system_s_words(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EIO, os.geteuid() + 1)
    assert told() == f"pid {os.getpid()} cannot be looked at: input/output error"


def test_one_that_ends_while_it_is_looked_at_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.ENOENT, os.geteuid())
    looks = iter((True, False))
    monkeypatch.setattr(claims, "alive", lambda _pid, _ticks: next(looks))
    assert told() is None
