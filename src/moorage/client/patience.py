"""Patience with a control plane that is being started again on this machine: refused connections are tried again.

`moor up` leaves a supervisor that starts a server that died within seconds; a command that comes in between should
find the one that follows. Only for an installation of this machine whose supervisor runs: where nothing was started,
or all was stopped, or another machine is meant, nothing will come, and the refusal is told at once.

A refused connection was seen by nobody, so trying again repeats nothing. Made by `sync` for the command line.
"""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from moorage.client.calls import Answer, Call, Duplex, NoAnswer, Transport, Trouble

AGAIN_S = 0.2
QUIET_S = 1.0
"""Most restarts are over by then, and a line about them would only alarm."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear refused connections.

    Args:
        told: called once with a sentence, when it begins to be long.
        limit_s: seconds, of all calls between two that were answered.
        seen: called before each try, and when it failed, with whether somebody may have seen the request by then.
    """

    told: Callable[[str], None]
    limit_s: float = 15.0
    seen: Callable[[bool], None] | None = None


class PatientTransport:
    """A transport that tries refused calls again while that can help.

    Args:
        inner: how calls travel.
        patience: how long.
        coming: whether somebody is there to start the control plane again; asked before each further try.
    """

    def __init__(self, inner: Transport, patience: Patience, coming: Callable[[], bool]) -> None:
        self.base_url = inner.base_url
        self._inner = inner
        self._patience = patience
        self._coming = coming
        self._refused_at: float | None = None
        self._told = False
        self._maybe_seen = False

    async def send(self, call: Call) -> Answer:
        """See `Transport`. Refusals are borne for no longer than the call itself may take."""
        began = self.monotonic()
        while True:
            self._note(True)
            try:
                answer = await self._inner.send(call)
            except NoAnswer as cause:
                self._maybe_seen = self._maybe_seen or cause.trouble is not Trouble.REFUSED
                self._note(self._maybe_seen)
                await self._bear(cause, began + call.limit_s)
            else:
                self._refused_at = None
                self._maybe_seen = False
                return answer

    def _note(self, maybe_seen: bool) -> None:
        if self._patience.seen is not None:
            self._patience.seen(maybe_seen)

    async def stream(self, call: Call) -> AsyncGenerator[str, None]:
        """See `Transport`. Only its beginning can be refused."""
        began = self.monotonic()
        while True:
            try:
                async with aclosing(self._inner.stream(call)) as lines:
                    async for line in lines:
                        self._refused_at = None
                        yield line
                return
            except NoAnswer as cause:
                await self._bear(cause, began + call.limit_s)

    async def _bear(self, cause: NoAnswer, until: float) -> None:
        """Sleep a moment before the next try, or raise the cause."""
        now = self.monotonic()
        if cause.trouble is not Trouble.REFUSED:
            raise cause
        if self._refused_at is None:
            self._refused_at = now
        until = min(until, self._refused_at + self._patience.limit_s)
        if now + AGAIN_S > until or not self._coming():
            raise cause
        if not self._told and now - self._refused_at >= QUIET_S:
            self._told = True
            left = max(1, round(until - now))
            self._patience.told(f"waiting for the control plane at {self.base_url}, for at most {left} s")
        await self.sleep(AGAIN_S)

    async def connect(self, path: str) -> Duplex:
        """See `Transport`. Not borne: nobody knows whether the one before was acted on."""
        return await self._inner.connect(path)

    def monotonic(self) -> float:
        """See `Transport`."""
        return self._inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        await self._inner.sleep(seconds)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()


def is_kept(home: Path | None) -> bool:
    """Whether the supervisor of an installation runs, as far as its record tells; one without a record may.

    Args:
        home: of the installation; None is none.
    """
    if home is None or not (home / "client.json").exists():
        return False
    try:
        record = json.loads((home / "supervisor.json").read_text())
        recorded = record.get("supervisor") or {}
        pid, started = int(recorded["pid"]), str(recorded["started"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return True
    return record.get("state") != "stopped" and _started(pid) == started


def _started(pid: int) -> str | None:
    """The start time of a process, in the kernel's ticks; None where it has none, or is stopped and starts nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "Tt" else fields[19]
