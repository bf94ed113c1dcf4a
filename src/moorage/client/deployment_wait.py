"""What a wait for a deployment reads, look by look. Loaded by the first wait; the rules are in `waiting`."""

from collections.abc import Callable
from typing import Any

from moorage.client.session import Session, fleet_path
from moorage.client.waiting import Beside, Bound, Failed, Goal, judge, needs_beside
from moorage.client.watching import Outcome, Sight, Watch, watch
from moorage.domain.errors import NotFound

Json = dict[str, Any]


async def wait_for(session: Session, namespace: str, what: Watch, bound: Bound | None) -> Outcome:
    """Wait; arguments and errors as `AsyncDeployments.wait`."""
    watched = _Watched(session, namespace, what.name, Goal(what.goal), bound or Bound())
    return await watch(what, watched.look, session.transport)


class _Watched:
    """Reads what the rules need, and remembers what was seen, so that a deletion is told from a wrong name."""

    def __init__(self, session: Session, namespace: str, name: str, goal: Goal, bound: Bound) -> None:
        self._session = session
        self._path = session.path("deployments", name, namespace=namespace)
        self._goal = goal
        self._bound = bound

    async def look(self, limit_s: float) -> Sight:
        """One look; all reads of it share the limit."""
        clock = self._session.transport
        until = clock.monotonic() + limit_s
        found = await self._deployment(limit_s)
        self._bound = Bound(self._bound.revision, self._bound.operation, self._bound.deployment or found.get("id"))
        beside = Beside()
        if needs_beside(found, self._bound) and not found.get("deleted"):
            beside = await self._beside(lambda: max(until - clock.monotonic(), 0.05))
        verdict = judge(self._goal, found, self._bound, beside)
        if isinstance(verdict, Failed) and beside != Beside():
            # What ended beside it was read later, and ended in one change with the deployment: show what belongs to it.
            found = await self._deployment(max(until - clock.monotonic(), 0.05))
            verdict = judge(self._goal, found, self._bound, beside)
        return Sight(found, verdict)

    async def _deployment(self, limit_s: float) -> Json:
        try:
            found: Json = await self._session.get(self._path, limit_s=limit_s)
        except NotFound:
            gone = await self._tombstone(limit_s)
            if gone is None:
                raise
            return gone
        return found

    async def _tombstone(self, limit_s: float) -> Json | None:
        """What is left of it. Without a tombstone of the right identity there never was one."""
        try:
            found = await self._session.get(self._path, limit_s=limit_s, deleted="true")
        except NotFound:
            return {"deleted": True} if self._bound.deployment else None
        items = found.get("items", [found]) if isinstance(found, dict) else found
        return {**items[-1], "deleted": True} if items else None

    async def _beside(self, left_s: Callable[[], float]) -> Beside:
        revision = operation = None
        if self._goal is not Goal.STOPPED:
            revision = await self._revision(left_s())
            if self._bound.operation is not None:
                operation = await self._operation(self._bound.operation, left_s())
        return Beside(revision, operation)

    async def _revision(self, limit_s: float) -> Json | None:
        try:
            revisions = await self._session.all(f"{self._path}/revisions", limit_s=limit_s)
        except NotFound:  # deleted between two reads: the next look says so
            return None
        return next((r for r in revisions if r.get("id") == self._bound.revision), None)

    async def _operation(self, uid: str, limit_s: float) -> Json | None:
        try:
            found: Json = await self._session.get(fleet_path("operations", uid), limit_s=limit_s)
        except NotFound:  # pruned: the deployment and its revision still tell
            return None
        return found
