"""Runs and their workers."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moorage.client.deployments import selector
from moorage.client.documents import Spec, plain_document
from moorage.client.logs import log_lines, log_query
from moorage.client.session import INTERVAL_S, Session

if TYPE_CHECKING:
    from moorage.client.exec import AsyncExecChannel, ExecResult
    from moorage.client.watching import Outcome

Json = dict[str, Any]
Items = list[Json]


class AsyncRuns:
    """`client.runs`. Every method takes `namespace`; None is the client's own. NAME means the newest of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def apply(self, spec: Spec, *, key: str | None = None, create_only: bool = False) -> Json:
        """Submit a run: `{run, changed, warnings}`. The same spec again changes nothing, and where that run is over the
        answer also has `message` and `remedy`.

        Args:
            spec: a document (`moorage.Run(…)`), a mapping of its fields, or the path of a file with one.
            key: idempotency key; None draws one.
            create_only: refuse where a run of that name exists, finished ones included.

        Raises:
            InvalidSpec: the spec is wrong, here or at the server.
            Conflict: a live run of that name has another spec, or a deployment has the name.
        """
        plain = plain_document(spec, "Run", self._session.namespace)
        path = self._session.path("runs", plain["name"], namespace=plain["namespace"])
        headers = {"If-None-Match": "*"} if create_only else None
        answer: Json = await self._session.change("PUT", path, body=plain, key=key, headers=headers)
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

    async def restart(
        self, name: str, *, text: str | None = None, key: str | None = None, namespace: str | None = None
    ) -> Json:
        """Start it again: a live one by stopping and queueing every worker, a finished one as a new run.

        Args:
            text: why, in your words; shown in its history.
        """
        path = self._session.path("runs", name, "restart", namespace=namespace)
        body = None if text is None else {"text": text}
        answer: Json = await self._session.change("POST", path, body=body, key=key)
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
        """Wait for a goal of the run that the name means now; a later one of that name is not taken for it.

        Args:
            goal: accepted, running (or completed already), completed, stopped (ended however) or deleted.
            timeout_s: None waits for ever.
            interval_s: seconds between two reads.
            on_status: called with each run object read.

        Raises:
            WaitFailed: it will not be reached; carries the last object, the reason, exit code and log.
            WaitTimeout: time is over.
            NotFound: there is no such run and never was.
        """
        from moorage.client.run_wait import wait_for_run
        from moorage.client.waiting import RUN_GOALS
        from moorage.client.watching import watch_of

        where = namespace or self._session.namespace
        how: dict[str, Any] = {"timeout_s": timeout_s, "interval_s": interval_s, "on_status": on_status}
        what = watch_of("Run", RUN_GOALS, where, name, goal, **how)
        return await wait_for_run(self._session, where, what)


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

    async def exec(
        self, worker: str, command: Sequence[str], *, stdin: bytes = b"", namespace: str | None = None
    ) -> "ExecResult":
        """Run a command beside it, with its environment, directory, GPUs and mounts, to the command's end.

        Args:
            worker: by name or uid; running.
            command: argv; a shell is not used.
            stdin: its input.

        Raises:
            Conflict: the worker does not run.
            Unavailable: its machine does not answer, or the connection was lost (what ran is ended then).
        """
        from moorage.client.exec import run_whole

        path = self._session.path("workers", worker, "exec", namespace=namespace)
        return await run_whole(self._session, path, command, stdin)

    async def attach(
        self,
        worker: str,
        command: Sequence[str],
        *,
        tty: bool = False,
        stdin: bool = True,
        rows: int = 24,
        columns: int = 80,
        term: str | None = None,
        namespace: str | None = None,
    ) -> "AsyncExecChannel":
        """As `exec`, giving the streams themselves.

        Args:
            tty: with a terminal of its own, of `rows` and `columns`, called `term`.
            stdin: whether it gets any input.
        """
        from moorage.client.exec import open_channel
        from moorage.wire.exec import ExecOrder

        path = self._session.path("workers", worker, "exec", namespace=namespace)
        order = ExecOrder(command=tuple(command), tty=tty, stdin=stdin, rows=rows, columns=columns, term=term)
        return await open_channel(self._session, path, order)

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
