"""This terminal (or these pipes) put together with a command beside a worker.

The thread that called writes what comes; a second one reads standard input and passes signals on, so that a key or a
Ctrl-C goes to the remote program even while its output is held up here. Called by `exec`.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from moorage.domain.errors import MoorageError

PIECE_BYTES = 32 << 10
BROKEN_PIPE = 128 + signal.SIGPIPE
PASSED_ON = {signal.SIGINT: "SIGINT", signal.SIGTERM: "SIGTERM", signal.SIGQUIT: "SIGQUIT", signal.SIGHUP: "SIGHUP"}


def terminal_size() -> tuple[int, int]:
    """Rows and columns of this terminal; 24 × 80 where there is none."""
    for stream in (0, 1, 2):  # the terminal itself, whatever COLUMNS and LINES of the environment say
        try:
            size = os.get_terminal_size(stream)
        except OSError:
            continue
        if size.lines and size.columns:
            return size.lines, size.columns
    return 24, 80


class Attached:
    """Carries the streams.

    Args:
        channel: to the command.
        tty: it has a terminal of its own, and this one is given over to it.
        reads: standard input is passed on.
    """

    def __init__(self, channel: Any, *, tty: bool, reads: bool) -> None:
        self._channel = channel
        self._tty = tty
        self._reads = reads
        self._over = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def carry(self) -> tuple[int, str]:
        """Until the command has ended; its exit code, and why it could not be executed.

        Raises:
            MoorageError: it was refused, or the connection was lost.
        """
        with self._signals(), self._raw():
            feeding = threading.Thread(target=self._feed, daemon=True)
            feeding.start()
            try:
                return self._show()
            except BrokenPipeError:  # whoever read our output has enough: the command is hung up on
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                return BROKEN_PIPE, ""
            finally:
                self._over = True
                self._wake()
                self._channel.close()
                feeding.join(1.0)

    def _show(self) -> tuple[int, str]:
        while True:
            event = self._channel.next()
            if event.kind == "exit":
                return event.code, event.error
            if event.kind == "room":
                self._wake()
            elif event.content:
                _write_whole(1 if event.kind == "stdout" else 2, event.content)
                self._channel.taken(len(event.content))

    def _feed(self) -> None:
        """Standard input and signals, until the command has ended."""
        try:
            while not self._over:
                sources = [self._wake_read, *([0] if self._reads and self._channel.room > 0 else [])]
                ready, _, _ = select.select(sources, [], [])
                if self._wake_read in ready:
                    for number in os.read(self._wake_read, 64):
                        self._pass_on(number)
                if 0 in ready:
                    self._read_input()
        except (MoorageError, OSError):
            return  # the connection is gone, which `_show` tells

    def _wake(self) -> None:
        """The second thread has something to look at."""
        with contextlib.suppress(BlockingIOError):  # then it has enough to wake up for
            os.write(self._wake_write, b"\0")

    def _read_input(self) -> None:
        content = os.read(0, min(PIECE_BYTES, self._channel.room))
        if content:
            self._channel.send(content)
        else:
            self._reads = False
            self._channel.end_input()

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGWINCH:
            self._channel.resize(*terminal_size())
        elif number in PASSED_ON:
            self._channel.signal(PASSED_ON[signal.Signals(number)])

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals become bytes for the second thread."""
        wanted = [*PASSED_ON, *([signal.SIGWINCH] if self._tty else [])]
        before = {number: signal.signal(number, lambda *_: None) for number in wanted}
        wake = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wake)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _raw(self) -> Iterator[None]:
        """Every key goes to the remote terminal, those that mean a signal too."""
        if not (self._tty and sys.stdin.isatty()):
            yield
            return
        import termios
        import tty

        before = termios.tcgetattr(0)
        tty.setraw(0)
        try:
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _write_whole(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])
