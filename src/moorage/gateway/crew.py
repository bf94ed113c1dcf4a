"""The worker processes of a gateway as its master sees them: starting one, hearing it, how it ended.

Here: processes and their channels. Not here: when one is started, replaced or ended (`master`). Standard library only.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.domain.silence import Silence
from moorage.gateway import handover, orders
from moorage.gateway.orders import Lines, Order

STARTING = "starting"
SERVING = "serving"
ENDING = "ending"
HUNG = "hung"
RETRY_MAX_S = 5.0
_FAULTS = frozenset(("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT"))
FORGIVEN_AFTER_S = 60.0


class Adopted:
    """The process of a worker that another master started, as far as it differs from a child of our own."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel

    def send_signal(self, number: int) -> None:
        """SIGTERM: it ends."""
        assert number == signal.SIGTERM
        with contextlib.suppress(OSError):  # it is gone already
            self._channel.send(orders.line(do=orders.END))

    def kill(self) -> None:
        """End it at once."""
        handover.kill(self.pid, self._channel)


@dataclass(slots=True)
class Worker:
    """One worker process."""

    order: Order
    child: "subprocess.Popen[bytes] | Adopted"
    channel: socket.socket
    state: str = STARTING
    since: float = field(default_factory=time.monotonic)
    left: int = 0
    """connections, of one that retires"""
    accelerators: tuple[str, ...] = ()
    """what of its hot path is compiled"""
    unused: str = ""
    """why not all of it that was built is"""
    failure: tuple[int, str] | None = None
    """exit code and message of one that could not start"""
    kill_at: float | None = None
    silence: Silence | None = None
    """towards the master's questions"""
    hung_s: float | None = None
    """of one that hung: for how long it had answered nothing"""
    covers: tuple[int, ...] = ()
    """the numbers of the spare sockets at which it was told to accept"""
    told_of: tuple[str, ...] = ()
    """the ids of workers that it was told run"""
    hung_up: bool = False
    lines: Lines = field(default_factory=Lines)

    def hear(self) -> None:
        """Take what it said."""
        with contextlib.suppress(BlockingIOError):
            try:
                while data := self.channel.recv(65536):
                    for said in self.lines.feed(data):
                        self._heard(said)
            except ConnectionError:
                pass
            self.hung_up = True

    def retire(self, kill_after_s: float) -> None:
        """Others serve from now on."""
        self._end_by(kill_after_s)
        with contextlib.suppress(OSError):  # it is gone already
            self.channel.send(orders.line(do=orders.RETIRE))

    def cover(self, sockets: tuple[int, ...]) -> None:
        """Accept at these as well, and at no other spare ones."""
        if sockets != self.covers:
            self.covers = sockets
            with contextlib.suppress(OSError):  # it is gone already
                self.channel.send(orders.line(do=orders.ACCEPT, sockets=sockets))

    def ask(self) -> bool:
        """Ask whether it lives; False where there is nobody any more."""
        try:
            self.channel.send(orders.line(do=orders.ASK))
        except BlockingIOError:
            return True  # it has not taken what was said before
        except OSError:
            return False
        return True

    def know(self, ids: tuple[str, ...]) -> None:
        """These run, and no others."""
        if ids != self.told_of:
            with contextlib.suppress(OSError):  # it is gone already, or is told again at the next change
                self.channel.send(orders.line(do=orders.PROCESSES, ids=ids))
                self.told_of = ids

    def end(self, kill_after_s: float) -> None:
        """The gateway ends."""
        self._end_by(kill_after_s)
        self.child.send_signal(signal.SIGTERM)

    def _end_by(self, kill_after_s: float) -> None:
        self.state = ENDING
        at = time.monotonic() + kill_after_s
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    def _heard(self, said: dict[str, Any]) -> None:
        what = said.get("said")
        if what == orders.SERVING and self.state == STARTING:
            self.state = SERVING
            self.accelerators = tuple(said.get("accelerators", ()))
            self.unused = str(said.get("unused", ""))
        elif what == orders.FAILED:
            self.failure = (int(said["code"]), str(said["message"]))
        elif what == orders.LIVES and self.silence is not None:
            self.silence.heard()
        elif what == orders.LEFT:
            self.left = int(said["count"])

    def ended(self) -> str | None:
        """How it ended; None while it runs."""
        if isinstance(self.child, Adopted):
            return "ended" if self.hung_up else None
        code = self.child.poll()
        if code is None:
            return None
        self.hear()
        if self.failure is not None:
            return self.failure[1]
        how = f"killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        return how if self.hung_s is None else f"hung (no answer for {self.hung_s:.0f} s); {how}"

    def close(self) -> None:
        """Nothing more is heard of it."""
        self.channel.close()


def adopted(handed: handover.Handed) -> Worker:
    """A worker that another master started, which serves."""
    said = handed.said
    order = Order(settings={}, gateway_id=said["gateway_id"], address=said["address"], master=said["master"])
    handed.channel.setblocking(False)
    return Worker(order, Adopted(handed.pid, handed.channel), handed.channel, state=SERVING)


def start(order: Order, sockets: Sequence[socket.socket], spare: Sequence[socket.socket] = ()) -> Worker:
    """Start a worker that accepts at these sockets, and at spare ones when it is told to.

    Raises:
        OSError: no process is to be had now.
    """
    ours, theirs = socket.socketpair()
    numbers, spares = [each.fileno() for each in sockets], [each.fileno() for each in spare]
    # -P: a folder in which it is started must not hold modules of ours.
    command = [sys.executable, "-P", "-m", "moorage.gateway.worker", "--channel", str(theirs.fileno())]
    command += ["--sockets", ",".join(map(str, numbers)), "--spare", ",".join(map(str, spares))]
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *numbers, *spares),
            process_group=0,  # a terminal's Ctrl-C is the master's to hear
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(True)
    with contextlib.suppress(OSError):  # it has ended already, which its exit tells
        ours.sendall(order.line())
    ours.setblocking(False)
    return Worker(order, child, ours)


def free_id(own: str, workers: Iterable[Worker]) -> str:
    """The id of a slot; while its predecessor retires, which still reports under that, another one."""
    used = {worker.order.gateway_id for worker in workers}
    number = 1
    while (name := own if number == 1 else f"{own}~{number}") in used:
        number += 1
    return name


def introduce(workers: Iterable[Worker]) -> None:
    """Tell all of them who runs, where that is another than before."""
    every = tuple(workers)
    ids = tuple(sorted(worker.order.gateway_id for worker in every))
    for worker in every:
        worker.know(ids)


def retry_delay_s(failures: int) -> float:
    """Seconds before a worker that died is started again, after `failures` earlier ones in a row."""
    return 0.0 if failures == 0 else min(RETRY_MAX_S, 0.25 * 2.0 ** min(failures - 1, 10))


def safer(values: Mapping[str, Any], how: str, *, served: bool) -> dict[str, Any] | None:
    """Settings without accelerators, after a worker died of a fault that compiled code may have and Python has not.

    Args:
        values: the settings of those that are there.
        how: it ended.
        served: the gateway has started. Before that, those that are required are not done without.

    Returns:
        None where that is no remedy: another end, or they are required or off.
    """
    fault = how.removeprefix("killed by ") in _FAULTS
    used = values.get("accelerators", "auto")
    return {**values, "accelerators": "off"} if fault and (used == "auto" or (used == "require" and served)) else None


def accelerated(workers: Collection[Worker]) -> dict[str, Any]:
    """What is told of their compiled forms: the parts that each uses, and why one does not use all that was built."""
    unused = next((worker.unused for worker in workers if worker.unused), "")
    return {"accelerators": [list(worker.accelerators) for worker in workers], "accelerators_unused": unused}


def identity() -> dict[str, Any]:
    """This process, told apart from every later one of the same pid: as `moorage.app.processes` knows it."""
    try:
        started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        started = boot = ""  # without /proc it is found by its command line
    return {"pid": os.getpid(), "started": started, "boot_id": boot}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
