"""What is really on this machine: everything that carries our marks, known to the ledger or not, told when asked.

A look reads /proc and lists each engine that this agent uses, without touching anything. What cannot be looked at is
named, so that nobody takes silence for absence. Whose something is, is told by the rule of `leftovers`.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from moorage.agent.asked import Asked
from moorage.agent.leftovers import folder_in, is_home
from moorage.agent.link import Link, LinkError
from moorage.agent.means import Means
from moorage.agent.roster import Roster
from moorage.domain.errors import RunnerError
from moorage.runners.identity import COOKIE_VARIABLE
from moorage.runners.orphans import Sight, Survey, survey
from moorage.wire.inventory import InventoryAnswer, InventoryItem, InventoryRequest


class StockDesk:
    """Serves what the control plane asks.

    Args:
        means: the agent's home, the engines whose containers are listed, its clock and its log.
        roster: what its ledger knows.
        link: where answers go.
    """

    def __init__(self, means: Means, roster: Roster, link: Link) -> None:
        self._home = means.config.home
        self._engines = means.engines
        self._clock = means.clock
        self._log = means.log
        self._roster = roster
        self._link = link
        self.take = Asked(self._serve, means.log).take

    async def _serve(self, request: InventoryRequest) -> None:
        answer = await self.look()
        try:
            await self._link.inventory(request.id, answer)
        except LinkError as cause:
            self._log.info("nobody took the inventory", why=str(cause))

    async def look(self) -> InventoryAnswer:
        """Everything, now."""
        begun = self._clock.monotonic()
        known = self._roster.cookies()
        incomplete: list[str] = []
        try:
            seen = await asyncio.to_thread(survey)
            items = processes(seen, self._home, known)
        except OSError as cause:
            items = []
            incomplete.append(f"its processes cannot be listed: {cause}")
        for host in self._engines.containers():
            try:
                found = await host.labelled()
            except RunnerError as cause:
                incomplete.append(f"{host.name} does not answer: {cause.message}")
                continue
            items += [
                item
                for one in found
                if (
                    item := _item(
                        f"container:{one.container[:12]}",
                        one.env,
                        self._home,
                        known,
                        alive=one.running,
                        runner=host.name,
                    )
                )
            ]
        return InventoryAnswer(
            items=tuple(items), incomplete=tuple(incomplete), begun_s=max(0.0, self._clock.monotonic() - begun)
        )


def processes(seen: Survey, home: Path, known: Mapping[str, bool]) -> list[InventoryItem]:
    """One item for each tree: its topmost process that carries the cookie."""
    roots: dict[str, Sight] = {}
    numbers = {sight.number: sight for sight in seen.carriers}
    for sight in sorted(seen.carriers, key=lambda s: (s.ticks, s.number)):
        above = numbers.get(sight.parent)
        if (above is None or above.cookie != sight.cookie) and sight.cookie != seen.own_cookie:
            roots.setdefault(sight.cookie, sight)
    found = (_item(f"pid:{s.number}", s.env, home, known, alive=True, here=s.here) for s in roots.values())
    return [item for item in found if item is not None]


def _item(
    resource: str,
    env: Mapping[str, str],
    home: Path,
    known: Mapping[str, bool],
    *,
    alive: bool,
    here: bool = True,
    runner: str = "process",
) -> InventoryItem | None:
    """None: it is of another installation on this machine."""
    cookie, folder = env.get(COOKIE_VARIABLE, ""), folder_in(env)
    mine = cookie in known
    proven = mine or (folder is not None and here and is_home(folder, home))
    names_us = env.get("MOORAGE_HEARTBEAT_FILE", "").startswith(f"{home}/")
    if not proven and not names_us:
        return None
    epoch = env.get("MOORAGE_EPOCH", "")
    return InventoryItem(
        resource=resource,
        runner=runner,
        worker=env.get("MOORAGE_WORKER", ""),
        epoch=int(epoch) if epoch.isdigit() else 0,
        identity=env.get("MOORAGE_IDENTITY", ""),
        digest=env.get("MOORAGE_DIGEST", ""),
        known=mine,
        proven=proven,
        alive=alive,
        healthy=known.get(cookie) if mine else None,
    )
