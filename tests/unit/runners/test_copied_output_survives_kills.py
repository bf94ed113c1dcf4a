"""A container's output is told whole wherever whoever copied it was killed: after any write, any number of times."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from moorage.runners import logfile
from moorage.runners.containers.output import FRAME_HEAD, OutputCopy
from moorage.runners.logfile import Limits
from moorage.runners.shimming.log import Log

SAID = (
    ("2026-11-29T19:14:00.006000000Z", b"first\n"),
    ("2026-11-29T19:14:00.506000000Z", b"second\n"),
    ("2026-11-29T19:14:00.506000000Z", b"third, of the same moment\n"),
    ("2026-11-29T19:14:00.507000000Z", b"fourth\n"),
    ("2026-11-29T19:14:09.000000000Z", b"last\n"),
)
LINES = tuple(text.decode().rstrip("\n") for _, text in SAID)


class Killed(BaseException):
    """The end of the process, as SIGKILL brings it."""


class StubEngine:
    """Says what a container said, each piece on its own, from a whole second on."""

    @asynccontextmanager
    async def logs(self, container: str, *, since: int, follow: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            for at, text in SAID:
                if datetime.fromisoformat(at).timestamp() >= since:
                    line = at.encode() + b" " + text
                    yield b"\1\0\0\0" + len(line).to_bytes(FRAME_HEAD - 4, "big") + line

        yield chunks()


@pytest.fixture
def kill_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Have the process end after so many more calls that change a file; None: never."""
    left: list[int | None] = [None]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **given: Any) -> Any:
            done = call(*args, **given)
            if left[0] is not None:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed
            return done

        return made

    for name in ("open", "write", "pwrite"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))

    def choose(calls: int | None) -> None:
        left[0] = calls

    return choose


async def copied(folder: Path) -> bool:
    """Copy all; whether it came to that before it was killed."""
    try:
        copy = OutputCopy(StubEngine(), "c", folder, None)  # type: ignore[arg-type]
        await copy.finish()
    except Killed:
        return False
    return True


@pytest.mark.parametrize("calls", range(1, 26))
async def test_every_line_is_told_once_wherever_the_copying_was_killed(
    tmp_path: Path, kill_after: Callable[[int | None], None], calls: int
) -> None:
    kill_after(calls)
    whole = await copied(tmp_path)
    kill_after(None)
    assert await copied(tmp_path)
    assert logfile.read(tmp_path).lines == LINES, f"killed after {calls} calls ({'not' if whole else 'in the middle'})"
    assert logfile.read(tmp_path, after=0).lines == LINES
    assert logfile.select(tmp_path, Limits(pattern="first")).lines == ("first",)
    assert logfile.read(tmp_path, lines=1).lines == ("last",)


async def test_every_line_is_told_once_however_often_the_copying_was_killed(
    tmp_path: Path, kill_after: Callable[[int | None], None]
) -> None:
    for calls in (3, 4, 5, 4, 3, 6):  # the first two are the opening of the files
        kill_after(calls)
        await copied(tmp_path)
    kill_after(None)
    assert await copied(tmp_path)
    assert logfile.read(tmp_path).lines == LINES


def test_lines_before_the_first_time_that_was_noted_are_there_and_their_time_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(b"")
    log = Log(str(tmp_path))
    noted, log._note_time = log._note_time, lambda *_: None  # type: ignore[method-assign]
    log.write(b"a\nb\n", 1_700_000_000_000)  # a full disk took the lines and not their time
    log._note_time = noted  # type: ignore[method-assign]
    log.write(b"c\n", 1_700_000_005_000)
    found = logfile.select(tmp_path, Limits())
    assert (found.lines, found.first_seq) == (("a", "b", "c"), 1)
    assert found.times == (0.0, 0.0, 1_700_000_005.0)
    assert logfile.select(tmp_path, Limits(since=1_700_000_006.0)).lines == ()
    assert logfile.select(tmp_path, Limits(since=1_700_000_004.0)).lines == ("a", "b", "c"), "they may be of then"
