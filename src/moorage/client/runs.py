"""Runs and their workers."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moorage.client.deployments import selector
from moorage.client.documents import Spec, plain_document
from moorage.client.logs import log_lines, log_query
from moorage.client.session import INTERVAL_S, Session
from moorage.domain.errors import InvalidSpec

if TYPE_CHECKING:
    from moorage.client.watching import Outcome

Json = dict[str, Any]
Items = list[Json]


class AsyncRuns:
    """`client.runs`. Every method takes `namespace`; None is the client's own. NAME means the newest of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def apply(self, spec: Spec, *, key: str | None = None) -> Json:
        """Submit a run. Errors as for deployments."""
        plain = plain_document(spec, "Run", self._session.namespace)
        path = self._session.path("runs", plain["name"], namespace=plain["namespace"])
        answer: Json = await self._session.change("PUT", path, body=plain, key=key)
        return answer

    async def get(self, name: str, *, namespace: str | None = None) -> Json:
        """One run, by name or uid."""
        answer: Json = await self._session.get(self._session.path("runs", name, namespace=namespace))
        return answer

    async def list(
        self,
        *,
        labels: Mapping[str, str] | str | None = None,
        deleted: bool = False,
        namespace: str | None = None,
    ) -> Items:
        """All of them, page after page; arguments as for deployments."""
        path = self._session.path("runs", namespace=namespace)
        return await self._session.all(path, labels=selector(labels), deleted="true" if deleted else None)

    async def workers(self, name: str, *, namespace: str | None = None) -> Items:
        """Its workers, by group and rank."""
        return await self._session.all(self._session.path("runs", name, "workers", namespace=namespace))

    async def history(self, name: str, *, namespace: str | None = None) -> Items:
        """Every change of it and its workers, oldest first."""
        return await self._session.all(self._session.path("runs", name, "history", namespace=namespace))

    async def why(self, name: str, *, namespace: str | None = None) -> Json:
        """Why it is as it is, per machine, and the smallest changes that would alter that."""
        answer: Json = await self._session.get(self._session.path("runs", name, "why", namespace=namespace))
        return answer

    async def plan(self, spec: Spec) -> Json:
        """What submitting it would do."""
        plain = plain_document(spec, "Run", self._session.namespace)
        path = self._session.path("runs", plain["name"], "plan", namespace=plain["namespace"])
        answer: Json = await self._session.change("POST", path, body=plain)
        return answer

    async def cancel(
        self, name: str, *, text: str | None = None, key: str | None = None, namespace: str | None = None
    ) -> Json:
        """End it. `text` is shown to all who ask why it ended."""
        path = self._session.path("runs", name, "cancel", namespace=namespace)
        body = None if text is None else {"text": text}
        answer: Json = await self._session.change("POST", path, body=body, key=key)
        return answer

    async def restart(self, name: str, *, key: str | None = None, namespace: str | None = None) -> Json:
        """Start it again: a live one by stopping and queueing every worker, a finished one as a new run."""
        path = self._session.path("runs", name, "restart", namespace=namespace)
        answer: Json = await self._session.change("POST", path, key=key)
        return answer

    async def delete(
        self, name: str, *, dry_run: bool = False, key: str | None = None, namespace: str | None = None
    ) -> Json:
        """End it and remove it with its workers; `dry_run` only tells what that touches."""
        path = self._session.path("runs", name, namespace=namespace)
        answer: Json = await self._session.change("DELETE", path, key=key, dry_run="true" if dry_run else None)
        return answer

    async def logs(
        self,
        name: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        previous: bool = False,
        attempt: int | None = None,
        since: str | float | None = None,
        grep: str | None = None,
        workers: Sequence[str] = (),
        ranks: Sequence[int] = (),
        groups: Sequence[str] = (),
        namespace: str | None = None,
    ) -> AsyncGenerator[Json, None]:
        """Lines of all its workers, put together by time, across their attempts; arguments as for deployments.

        Args:
            workers, ranks, groups: only these of its workers; empty: all.
        """
        path = self._session.path("runs", name, namespace=namespace)
        query = log_query(
            lines=lines,
            previous=previous,
            attempt=attempt,
            since=since,
            grep=grep,
            workers=workers,
            ranks=ranks,
            groups=groups,
        )
        async for line in log_lines(self._session, path, query, follow=follow):
            yield line

    async def wait(
        self,
        name: str,
        goal: str = "completed",
        *,
        timeout_s: float | None = 600.0,
        interval_s: float = INTERVAL_S,
        on_status: Callable[[Json], None] | None = None,
        namespace: str | None = None,
    ) -> "Outcome":
        """Wait until it completed, or for goal `stopped` until it ended however. Errors as for deployments."""
        from moorage.client.waiting import RUN_GOALS, judge_run
        from moorage.client.watching import Sight, Watch, watch

        if goal not in RUN_GOALS:
            known = ", ".join(sorted(RUN_GOALS))
            raise InvalidSpec(f"a run cannot be waited for until {goal!r}", remedy=f"wait for one of: {known}")
        namespace = namespace or self._session.namespace
        path = self._session.path("runs", name, namespace=namespace)

        async def look(limit_s: float) -> "Sight":
            run = await self._session.get(path, limit_s=limit_s)
            return Sight(run, judge_run(goal, run))

        what = Watch(str(goal), f"Run {namespace}/{name}", name, timeout_s, interval_s, on_status)
        return await watch(what, look, self._session.transport)


class AsyncWorkers:
    """`client.workers`: the processes of runs, by uid."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, worker: str, *, namespace: str | None = None) -> Json:
        """One worker."""
        answer: Json = await self._session.get(self._session.path("workers", worker, namespace=namespace))
        return answer

    async def history(self, worker: str, *, namespace: str | None = None) -> Items:
        """Every change of it, oldest first."""
        return await self._session.all(self._session.path("workers", worker, "history", namespace=namespace))

    async def logs(
        self,
        worker: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        previous: bool = False,
        attempt: int | None = None,
        since: str | float | None = None,
        grep: str | None = None,
        namespace: str | None = None,
    ) -> AsyncGenerator[Json, None]:
        """Its lines; arguments as for deployments."""
        path = self._session.path("workers", worker, namespace=namespace)
        query = log_query(lines=lines, previous=previous, attempt=attempt, since=since, grep=grep)
        async for line in log_lines(self._session, path, query, follow=follow):
            yield line

    async def stop(self, worker: str, *, reason: str, key: str | None = None, namespace: str | None = None) -> Json:
        """Stop it, saying why."""
        path = self._session.path("workers", worker, "stop", namespace=namespace)
        answer: Json = await self._session.change("POST", path, body={"reason": reason}, key=key)
        return answer


class AsyncReplicas:
    """`client.replicas`: single copies of a deployment, by uid or name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, replica: str, *, namespace: str | None = None) -> Json:
        """One replica."""
        answer: Json = await self._session.get(self._session.path("replicas", replica, namespace=namespace))
        return answer

    async def history(self, replica: str, *, namespace: str | None = None) -> Items:
        """Every change of it, oldest first."""
        return await self._session.all(self._session.path("replicas", replica, "history", namespace=namespace))
