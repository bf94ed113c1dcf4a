"""Process trees on this machine of which nothing is known but what they show: found, and ended whole.

`survey` reads from /proc what each process carries (environment with a cookie) and which directory each shim serves;
whose that is, the caller judges. `Trees` ends what it was given: the roots, all below them, and all that carry their
cookies, each pinned by a pidfd and looked at again before it is signalled. Called by the agent at its start. What a
known worker left behind its dead shim is in `strays.py`.
"""

import asyncio
import os
import select
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.ports import Clock
from moorage.runners.identity import COOKIE_VARIABLE
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import shown_stat, slurp

SHIM_SCRIPT = b"/moorage/runners/shim.py"
LOOK_PAUSE_S, LOOK_PAUSE_MAX_S = 0.02, 0.5
_PREFIX = b"MOORAGE_"
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Sight:
    """One process as /proc shows it.

    Args:
        number: its number there (see `shimming/procfs.py`).
        ticks: kernel start ticks; with the number they name it for as long as it lives.
        parent: number of its parent.
        env: its MOORAGE_ variables; empty for a shim.
        folder: the directory that it serves as a shim, as the kernel names it now; empty for anything else.
        here: whether it sees the same files under the same names as this process.
    """

    number: int
    ticks: int
    parent: int
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    here: bool = True

    @property
    def cookie(self) -> str:
        """Of its worker."""
        return self.env.get(COOKIE_VARIABLE, "")


@dataclass(frozen=True, slots=True)
class Survey:
    """One look at /proc.

    Args:
        carriers: processes with a cookie.
        shims: shims with a directory.
        parents: number → (number of the parent, start ticks) of everything alive.
        above: numbers of what this process descends from.
        own_cookie: what this process carries itself, being started by a worker; empty as a rule.
    """

    carriers: tuple[Sight, ...]
    shims: tuple[Sight, ...]
    parents: Mapping[int, tuple[int, int]]
    above: frozenset[int] = frozenset()
    own_cookie: str = ""

    def below(self, roots: frozenset[int]) -> frozenset[int]:
        """The roots that are alive and everything that descends from them."""
        found = {n for n in roots if n in self.parents}
        for number in self.parents:
            path, at = [], number
            while at in self.parents and at not in found and at not in path:
                path.append(at)
                at = self.parents[at][0]
            if at in found:
                found.update(path)
        return frozenset(found)


def survey() -> Survey:
    """Look at every process that this user may look at, but this one."""
    me, own_files = procfs.number(os.getpid()), _namespace("self")
    carriers, shims = [], []
    parents: dict[int, tuple[int, int]] = {}
    for number in procfs.numbers():
        fields = shown_stat(number)
        if number == me or not fields or fields[0] in b"ZX":
            continue
        parent, ticks = parents[number] = int(fields[1]), int(fields[19])
        here = _namespace(str(number)) == own_files
        folder = _served(number)
        env = {} if folder else _variables(number)
        if folder:
            shims.append(Sight(number, ticks, parent, folder=folder, here=here))
        elif COOKIE_VARIABLE in env:
            carriers.append(Sight(number, ticks, parent, env, here=here))
    own_cookie = _variables(me).get(COOKIE_VARIABLE, "") if me is not None else ""
    return Survey(tuple(carriers), tuple(shims), parents, _above(me, parents), own_cookie)


class Trees:
    """Trees to be ended.

    Args:
        roots: what was proven to be ours: carriers and shims.
    """

    def __init__(self, roots: tuple[Sight, ...]) -> None:
        self._roots = roots
        self._cookies = frozenset(r.cookie for r in roots if r.cookie)
        self._shims = {(r.number, r.ticks) for r in roots if r.folder}
        self._pinned: dict[tuple[int, int], tuple[int, int]] = {}
        """(number, ticks) → (pid, pidfd)"""
        self._asked: set[tuple[int, int]] = set()

    async def end(self, grace_s: float, clock: Clock) -> None:
        """SIGTERM to each, SIGKILL after the grace, until nothing is left; an unkillable one is waited for.

        A shim gets no SIGTERM: it ends by itself after its tree.
        """
        deadline, pause = clock.monotonic() + grace_s, LOOK_PAUSE_S
        try:
            while await asyncio.to_thread(self._look):
                self._signal(kill=clock.monotonic() >= deadline)
                await clock.sleep(pause)
                pause = min(pause * 1.5, LOOK_PAUSE_MAX_S)
        finally:
            for _, fd in self._pinned.values():
                os.close(fd)
            self._pinned.clear()

    @property
    def left(self) -> tuple[int, ...]:
        """Pids that were alive at the last look."""
        return tuple(sorted(pid for pid, _ in self._pinned.values()))

    def _look(self) -> bool:
        """Pin what belongs to the trees now and drop what has ended; False when nothing is left."""
        seen = survey()
        roots = {(r.number, r.ticks) for r in self._roots} | set(self._pinned)
        roots |= {(c.number, c.ticks) for c in seen.carriers if c.cookie in self._cookies}
        alive = frozenset(n for n, ticks in roots if n in seen.parents and seen.parents[n][1] == ticks)
        for number in seen.below(alive):
            self._pin(number, seen.parents[number][1])
        for key, (_, fd) in list(self._pinned.items()):
            if _ended(fd):
                os.close(fd)
                del self._pinned[key]
        return bool(self._pinned)

    def _pin(self, number: int, ticks: int) -> None:
        if (number, ticks) in self._pinned:
            return
        held = procfs.pin(number)
        if held is None:
            return
        fields = shown_stat(number)
        if held[0] != os.getpid() and fields and int(fields[19]) == ticks:
            self._pinned[number, ticks] = held
        else:
            os.close(held[1])

    def _signal(self, *, kill: bool) -> None:
        for key, (_, fd) in self._pinned.items():
            if not kill and (key in self._asked or key in self._shims):
                continue
            self._asked.add(key)
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL if kill else signal.SIGTERM)
            except ProcessLookupError:
                continue


def _above(me: int | None, parents: Mapping[int, tuple[int, int]]) -> frozenset[int]:
    fields = shown_stat(me) if me is not None else None
    at, found = int(fields[1]) if fields else 0, set()
    while at in parents and at not in found:
        found.add(at)
        at = parents[at][0]
    return frozenset(found)


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _variables(number: int) -> dict[str, str]:
    try:
        pairs = [p.split(b"=", 1) for p in slurp(f"/proc/{number}/environ").split(b"\0") if p.startswith(_PREFIX)]
    except OSError:
        return {}  # it ended meanwhile, or belongs to somebody else
    return {os.fsdecode(pair[0]): os.fsdecode(pair[1]) for pair in pairs if len(pair) == 2}


def _served(number: int) -> str:
    """The directory of which a shim holds the control FIFO; empty when this is no shim, or has no order yet."""
    try:
        if SHIM_SCRIPT not in slurp(f"/proc/{number}/cmdline"):
            return ""
        folder = f"/proc/{number}/fd"
        for fd in os.listdir(folder):  # noqa: PTH208  # pathlib would build an object for each of them
            target = os.readlink(f"{folder}/{fd}").removesuffix(_DELETED)  # noqa: PTH115  # likewise
            if target.endswith("/control"):
                return target.removesuffix("/control")
    except OSError:
        return ""  # it ended meanwhile, or belongs to somebody else
    return ""


def _namespace(name: str) -> str:
    try:
        return os.readlink(f"/proc/{name}/ns/mnt")  # noqa: PTH115  # of the kernel, not a file
    except OSError:
        return ""
