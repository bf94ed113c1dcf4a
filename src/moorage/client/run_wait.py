"""What a wait for a run reads, look by look. Loaded by the first wait; the rules are in `waiting`."""

from typing import Any

from moorage.client.session import Session
from moorage.client.waiting import Goal, judge_run
from moorage.client.watching import Outcome, Sight, Watch, watch
from moorage.domain.errors import NotFound

Json = dict[str, Any]


async def wait_for_run(session: Session, namespace: str, what: Watch) -> Outcome:
    """Wait; arguments and errors as `AsyncRuns.wait`."""
    return await watch(what, _Watched(session, namespace, what.name, Goal(what.goal)).look, session.transport)


class _Watched:
    """Reads one run, and from the first look on that very one: a later namesake is not what is waited for."""

    def __init__(self, session: Session, namespace: str, name: str, goal: Goal) -> None:
        self._session = session
        self._namespace = namespace
        self._name = name
        self._goal = goal
        self._seen = False

    async def look(self, limit_s: float) -> Sight:
        """One look."""
        path = self._session.path("runs", self._name, namespace=self._namespace)
        try:
            run: Json = await self._session.get(path, limit_s=limit_s)
        except NotFound:
            try:
                run = {**await self._session.get(path, limit_s=limit_s, deleted="true"), "deleted": True}
            except NotFound:
                if not self._seen:
                    raise
                run = {"deleted": True}  # its tombstone is pruned as well
        self._seen = True
        self._name = str(run.get("id") or self._name)
        return Sight(run, judge_run(self._goal, run))
