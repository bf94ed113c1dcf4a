"""What earlier agents of this home left and the ledger does not know (it was lost): ended before anything is started.

A worker carries its cookie, its name and epoch and, in the path of its heartbeat file, the home of its agent and its
own directory, which is named after all three. What carries all of that, consistently and with this home, is proven to
be ours; so is a shim that serves such a directory, or whose command is proven. Another installation's home is another
one, and is not even counted. What names this home and cannot be proven is left alone and named in the log. Called by
the session before it says what is held, and by `engines` when an engine is found.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from moorage.agent.launching import HEARTBEAT_FILE
from moorage.agent.setting_up import EXCHANGE
from moorage.ports import Clock
from moorage.runners.containers.host import ContainerHost
from moorage.runners.identity import COOKIE_VARIABLE
from moorage.runners.orphans import Sight, Survey, Trees, survey

GRACE_S = 10.0
"""Between SIGTERM and SIGKILL. What its spec allowed is lost with the ledger."""
UNKILLABLE_AFTER_S = 30.0


@dataclass(frozen=True, slots=True)
class Found:
    """What of a survey concerns this home and is not in its ledger.

    Args:
        ours: proven.
        unproven: names this home, and is left alone.
    """

    ours: tuple[Sight, ...] = ()
    unproven: tuple[Sight, ...] = ()


class Leftovers:
    """Ends them.

    Args:
        home: of this agent.
        known: cookies in its ledger.
        clock: for graces.
        log: the agent's.
    """

    def __init__(self, home: Path, known: frozenset[str], clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self._home = home
        self._known = known
        self._clock = clock
        self._log = log

    async def end_processes(self) -> None:
        """End every process tree that is proven ours and unknown; returns when none is left."""
        found = judge(await asyncio.to_thread(survey), self._home, self._known)
        if found.unproven:
            self._log.warning(
                "processes name this agent's home and cannot be proven to be its own: left alone",
                count=len(found.unproven),
                processes=sorted(s.number for s in found.unproven),
            )
        if not found.ours:
            return
        for sight in found.ours:
            self._log.warning(
                "a worker that the ledger does not know, proven to be of this home: ending its tree",
                worker=sight.env.get("MOORAGE_WORKER"),
                epoch=sight.env.get("MOORAGE_EPOCH"),
                process=sight.number,
                folder=sight.folder or str(folder_in(sight.env)),
            )
        await self._end(Trees(found.ours))
        self._log.warning("workers that the ledger did not know are gone", processes=len(found.ours))

    async def _end(self, trees: Trees) -> None:
        ending = asyncio.create_task(trees.end(GRACE_S, self._clock))
        try:
            while not ending.done():
                await asyncio.wait({ending}, timeout=GRACE_S + UNKILLABLE_AFTER_S)
                if not ending.done():
                    self._log.error("cannot be killed, and nothing is started beside it", pids=trees.left)
            ending.result()
        finally:
            ending.cancel()

    async def end_containers(self, host: ContainerHost) -> None:
        """End and remove every container of an engine that is proven ours and unknown.

        Raises:
            RunnerError: the engine does not answer, so that nothing is proven.
        """
        ours, unproven = [], []
        for one in await host.labelled():
            folder = folder_in(one.env)
            if one.env.get(COOKIE_VARIABLE) in self._known:
                continue
            if folder is not None and is_home(folder, self._home):
                ours.append(one)
            elif folder is None and _names(one.env, self._home):
                unproven.append(one.name)
        if unproven:
            self._log.warning(
                "containers name this agent's home and cannot be proven to be its own: left alone",
                engine=host.name,
                count=len(unproven),
                containers=unproven,
            )
        for one in ours:
            self._log.warning(
                "a container that the ledger does not know, proven to be of this home: removing it",
                engine=host.name,
                container=one.name,
                worker=one.env.get("MOORAGE_WORKER"),
            )
        await asyncio.gather(*(host.discard(one.container, GRACE_S) for one in ours))


def judge(seen: Survey, home: Path, known: frozenset[str]) -> Found:
    """What of all processes is ours and unknown.

    Args:
        seen: a look at /proc.
        home: of this agent.
        known: cookies in its ledger.
    """
    ours: list[Sight] = []
    unproven: list[Sight] = []
    short = {cookie[:8] for cookie in known}
    for sight in seen.carriers:
        folder = folder_in(sight.env)
        if sight.cookie in known or not (is_home(folder, home) if folder else _names(sight.env, home)):
            continue
        proven = folder is not None and _provable(sight, seen)
        (ours if proven else unproven).append(sight)
    commands = {sight.parent for sight in ours}
    for sight in seen.shims:
        folder = Path(sight.folder)
        if folder.name.partition("-")[2] in short:
            continue
        if sight.number in commands and sight.number not in seen.above:
            ours.append(sight)
        elif is_home(folder, home):
            (ours if _provable(sight, seen) else unproven).append(sight)
    return Found(tuple(ours), tuple(unproven))


def folder_in(env: Mapping[str, str]) -> Path | None:
    """The directory of the attempt that a worker's environment names; None where its parts do not agree."""
    names = ("MOORAGE_WORKER", "MOORAGE_EPOCH", COOKIE_VARIABLE, "MOORAGE_HEARTBEAT_FILE")
    worker, epoch, cookie, heartbeat = (env.get(name, "") for name in names)
    path = Path(heartbeat)
    folder = path.parent.parent if path.parent.name == EXCHANGE else path.parent
    agreed = path.name == HEARTBEAT_FILE and folder.parent.name == worker and folder.parent.parent.name == "workers"
    return folder if worker and cookie and agreed and folder.name == f"{epoch}-{cookie[:8]}" else None


def is_home(folder: Path, home: Path) -> bool:
    """Whether it is `HOME/workers/WORKER/ATTEMPT`, links in the way of the home aside."""
    above = folder.parents
    return len(above) > 2 and above[1].name == "workers" and os.path.realpath(above[2]) == os.path.realpath(home)


def _names(env: Mapping[str, str], home: Path) -> bool:
    return env.get("MOORAGE_HEARTBEAT_FILE", "").startswith(f"{home}/")


def _provable(sight: Sight, seen: Survey) -> bool:
    """Not in another view of the file system, where the same path is another home, and not what we ourselves are of."""
    ours_too = sight.number in seen.above or (sight.cookie and sight.cookie == seen.own_cookie)
    return sight.here and not ours_too
