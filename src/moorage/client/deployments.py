"""Deployments: apply, look, switch, wait. Written once; `sync` has the same with blocking methods."""

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.client.applied import AsyncApplied
from moorage.client.documents import Spec, plain_document
from moorage.client.logs import log_lines, log_query
from moorage.client.session import INTERVAL_S, Session
from moorage.domain.errors import InvalidSpec

if TYPE_CHECKING:
    from moorage.client.waiting import Bound
    from moorage.client.watching import Outcome

Json = dict[str, Any]
Items = list[Json]


def selector(labels: Mapping[str, str] | str | None) -> str | None:
    """A label selector as the API takes it: `team=search,tier!=dev`."""
    if labels is None or isinstance(labels, str):
        return labels
    return ",".join(f"{key}={value}" for key, value in labels.items())


class AsyncDeployments:
    """`client.deployments`. Every method takes `namespace`; None is the client's own."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def apply(
        self,
        spec: Spec,
        *,
        key: str | None = None,
        create_only: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncApplied:
        """Make it so. The same spec again changes nothing.

        Args:
            spec: a document, a mapping of its fields, or the path of a file with one.
            key: idempotency key; None draws one.
            create_only: refuse where a deployment of that name exists.
            timeout_s: for the answer, where that is less than the client's usual.

        Raises:
            InvalidSpec: the spec is wrong, here or at the server.
            Conflict: it contradicts what is recorded (deleted just now, failed, or `create_only`).
        """
        plain = plain_document(spec, "Deployment", self._session.namespace)
        path = self._session.path("deployments", plain["name"], namespace=plain["namespace"])
        headers = {"If-None-Match": "*"} if create_only else None
        answer = await self._session.change("PUT", path, body=plain, key=key, headers=headers, timeout_s=timeout_s)
        return _applied(answer, plain, self)

    async def adopt(
        self,
        name: str,
        url: str,
        *,
        mode: str = "observe",
        resource: str | None = None,
        model: str | None = None,
        namespace: str | None = None,
        key: str | None = None,
    ) -> Json:
        """Take in a server that somebody else started: {deployment, operation, changed}.

        Args:
            name: of the deployment that it becomes.
            url: `http://HOST:PORT` of the server.
            mode: `observe` looks at it, `traffic` also sends requests there, `lifecycle` may also end it.
            resource: `MACHINE/pid:N` or `MACHINE/container:ID`, what lifecycle may end.
            model: id that it must list.
            namespace: None is the client's own.
            key: idempotency key.
        """
        body: Json = {"url": url, "mode": mode}
        body |= {k: v for k, v in (("resource", resource), ("model", {"id": model} if model else None)) if v}
        path = self._session.path("deployments", name, "adopt", namespace=namespace)
        answer: Json = await self._session.change("POST", path, body=body, key=key)
        return answer

    async def plan(self, spec: Spec) -> Json:
        """What an apply would change: `changes`, `actions`, `warnings`, `touches`. Nothing is written."""
        plain = plain_document(spec, "Deployment", self._session.namespace)
        path = self._session.path("deployments", plain["name"], "plan", namespace=plain["namespace"])
        answer: Json = await self._session.change("POST", path, body=plain)
        return answer

    async def get(self, name: str, *, namespace: str | None = None, deleted: bool = False) -> Json:
        """One deployment; with `deleted`, the tombstone of one that is gone.

        Raises:
            NotFound: there is none.
        """
        path = self._session.path("deployments", name, namespace=namespace)
        answer: Json = await self._session.get(path, deleted="true" if deleted else None)
        return answer

    async def list(
        self,
        *,
        labels: Mapping[str, str] | str | None = None,
        deleted: bool = False,
        namespace: str | None = None,
    ) -> Items:
        """All of them, page after page.

        Args:
            labels: only those with these; a mapping, or a selector (`team=search,tier!=dev`).
            deleted: tombstones instead.
        """
        path = self._session.path("deployments", namespace=namespace)
        return await self._session.all(path, labels=selector(labels), deleted="true" if deleted else None)

    async def stop(
        self, name: str, *, text: str | None = None, key: str | None = None, namespace: str | None = None
    ) -> Json:
        """Stop it for good: `{deployment, operation}`, uids. A failed one stays failed, and that succeeds.

        Args:
            text: why, in your words; shown in its history.
        """
        return await self._post(name, "stop", namespace, key=key, body={"text": text} if text else None)

    async def delete(
        self,
        name: str,
        *,
        dry_run: bool = False,
        keep_resources: str | None = None,
        key: str | None = None,
        namespace: str | None = None,
    ) -> Json:
        """Delete it and all that is its own: `{deployment, operation}`; with `dry_run`, what that would touch.

        Args:
            name: of the deployment.
            dry_run: only tell.
            keep_resources: its name once more: an adopted server is left running, and its tombstone says that it is
                somebody else's from then on.
            key: idempotency key; None draws one.
        """
        path = self._session.path("deployments", name, namespace=namespace)
        query: dict[str, Any] = {"dry_run": "true" if dry_run else None, "keep_resources": keep_resources}
        answer: Json = await self._session.change("DELETE", path, key=key, **query)
        return answer

    async def pause(self, name: str, *, key: str | None = None, namespace: str | None = None) -> Json:
        """Put it to sleep; the next request wakes it."""
        return await self._post(name, "pause", namespace, key=key)

    async def wake(self, name: str, *, key: str | None = None, namespace: str | None = None) -> Json:
        """Wake it now."""
        return await self._post(name, "wake", namespace, key=key)

    async def scale(
        self,
        name: str,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
        key: str | None = None,
        namespace: str | None = None,
    ) -> Json:
        """Change `replicas.min` and `replicas.max`; the next apply of a file sets them again."""
        wanted = {"min": minimum, "max": maximum}
        body = {word: count for word, count in wanted.items() if count is not None}
        if not body:
            raise InvalidSpec("scale needs a minimum or a maximum", remedy="say minimum=… or maximum=…")
        return await self._post(name, "scale", namespace, key=key, body=body)

    async def promote(
        self,
        name: str,
        *,
        reason: str | None = None,
        revision: str | None = None,
        key: str | None = None,
        namespace: str | None = None,
    ) -> Json:
        """The candidate takes over without the guard's word: `{deployment, revision, operation, changed}`.

        Args:
            name: of the deployment.
            reason: why, in your words; shown in its history.
            revision: number, name or id, so that the word is never taken for one on a later candidate.
            key: idempotency key; None draws one.

        Raises:
            Conflict: there is no candidate, it is another revision, or a higher operation is under way.
        """
        body = {k: v for k, v in (("reason", reason), ("revision", revision)) if v is not None}
        return await self._post(name, "promote", namespace, key=key, body=body)

    async def reject(
        self,
        name: str,
        *,
        reason: str | None = None,
        revision: str | None = None,
        key: str | None = None,
        namespace: str | None = None,
    ) -> Json:
        """The candidate ends and the active revision goes on; as `promote`. With nothing rolled out it is a no-op."""
        body = {k: v for k, v in (("reason", reason), ("revision", revision)) if v is not None}
        return await self._post(name, "reject", namespace, key=key, body=body)

    async def rollback(
        self,
        name: str,
        *,
        to: str | None = None,
        reason: str | None = None,
        key: str | None = None,
        namespace: str | None = None,
    ) -> Json:
        """Back to a revision that served before, once its capacity is there; as `promote`.

        Args:
            name: of the deployment.
            to: number, name or id of the revision; None: the one that served last.
            reason: why, in your words; shown in its history.
            key: idempotency key; None draws one.

        Raises:
            Conflict: there is none to go back to, it never served, or what ends the deployment is under way.
        """
        body = {k: v for k, v in (("reason", reason), ("to", to)) if v is not None}
        return await self._post(name, "rollback", namespace, key=key, body=body)

    async def post_evidence(
        self,
        name: str,
        *,
        revision: str | int,
        metric: str,
        value: float,
        samples: int,
        key: str | None = None,
        namespace: str | None = None,
    ) -> Json:
        """Keep a quality score with a revision; `counts` says whether the spec's guard asks for this metric.

        Args:
            name: of the deployment.
            revision: number, name or id.
            metric: as `rollout.guard.quality` names it.
            value: the score; more is better. A share of 0 to 1 is compared with the scatter that its samples allow.
            samples: cases that it is the mean of.
            key: idempotency key; None draws one.

        Raises:
            NotFound: there is no such revision.
            Conflict: the revision is over.
            InvalidSpec: the value is no finite number.
        """
        if not math.isfinite(value):
            raise InvalidSpec(f"the value {value} is no score", remedy="it must be a finite number")
        body = {"revision": revision, "metric": metric, "value": value, "samples": samples}
        return await self._post(name, "evidence", namespace, key=key, body=body)

    async def rollout(self, name: str, *, namespace: str | None = None) -> Json:
        """What moves: a rollout, a rollback, the window after a promotion, what drains; `message` says it in words."""
        answer: Json = await self._session.get(self._session.path("deployments", name, "rollout", namespace=namespace))
        return answer

    async def decisions(self, name: str, *, namespace: str | None = None) -> Items:
        """Every release decision that is kept, with policy and evidence, by revision."""
        return await self._session.all(self._session.path("deployments", name, "decisions", namespace=namespace))

    async def explain(self, name: str, decision: str | None = None, *, namespace: str | None = None) -> Json:
        """A release decision worked out again from its stored inputs; `identical`: the answer is so to the byte.

        Args:
            name: of the deployment.
            decision: its id, or a revision's number; None: the last one.

        Raises:
            NotFound: there is no such decision.
        """
        path = self._session.path("deployments", name, "rollout", "explain", namespace=namespace)
        answer: Json = await self._session.get(path, decision=decision)
        return answer

    async def replicas(self, name: str, *, namespace: str | None = None) -> Items:
        """Its replicas, ended ones included, oldest first."""
        return await self._session.all(self._session.path("deployments", name, "replicas", namespace=namespace))

    async def revisions(self, name: str, *, namespace: str | None = None) -> Items:
        """Its revisions, oldest first."""
        return await self._session.all(self._session.path("deployments", name, "revisions", namespace=namespace))

    async def history(self, name: str, *, namespace: str | None = None) -> Items:
        """Every change of it and of what is under it, oldest first; also of a deleted one."""
        return await self._session.all(self._session.path("deployments", name, "history", namespace=namespace))

    async def scaling(self, name: str, *, namespace: str | None = None) -> Json:
        """How it scales: size, limits, the last decision with its reason, the newest ones, and the load seen."""
        answer: Json = await self._session.get(self._session.path("deployments", name, "scaling", namespace=namespace))
        return answer

    async def why(self, name: str, *, namespace: str | None = None) -> Json:
        """Why it is as it is, per machine, and the smallest changes that would alter that."""
        answer: Json = await self._session.get(self._session.path("deployments", name, "why", namespace=namespace))
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
        namespace: str | None = None,
    ) -> AsyncGenerator[Json, None]:
        """Lines of its servers: `{kind: line|event, line, worker, attempt, seq, at}`.

        Args:
            lines: how many of each worker's last lines to begin with; None: 200, or all there are with `since`.
            follow: go on as they come, through sleep and wake, until it is over.
            previous: of the attempt before.
            attempt: of that attempt.
            since: only lines of the last `30s`, `10m`, `1h30m` or seconds.
            grep: only lines in which this regular expression (RE2) is found; searched for on the machine.
        """
        path = self._session.path("deployments", name, namespace=namespace)
        query = log_query(lines=lines, previous=previous, attempt=attempt, since=since, grep=grep)
        async for line in log_lines(self._session, path, query, follow=follow):
            yield line

    async def wait(
        self,
        name: str,
        goal: str = "ready",
        *,
        timeout_s: float | None = 600.0,
        bound: "Bound | None" = None,
        interval_s: float = INTERVAL_S,
        on_status: Callable[[Json], None] | None = None,
        namespace: str | None = None,
    ) -> "Outcome":
        """Wait for a goal.

        Args:
            name: of the deployment.
            goal: accepted, ready, live, promoted or stopped.
            timeout_s: None waits for ever.
            bound: what the wait belongs to (`Applied.bound`); None: the deployment as it is now.
            interval_s: seconds between two reads.
            on_status: called with each deployment object read.

        Raises:
            WaitFailed: it will not be reached; carries the last object, the reason, exit code and log.
            WaitTimeout: time is over.
            NotFound: there was none to begin with.
        """
        from moorage.client.deployment_wait import wait_for
        from moorage.client.waiting import DEPLOYMENT_GOALS
        from moorage.client.watching import watch_of

        where = namespace or self._session.namespace
        how: dict[str, Any] = {"timeout_s": timeout_s, "interval_s": interval_s, "on_status": on_status}
        what = watch_of("Deployment", DEPLOYMENT_GOALS, where, name, goal, **how)
        return await wait_for(self._session, where, what, bound)

    async def _post(self, name: str, verb: str, namespace: str | None, *, key: str | None, body: Any = None) -> Json:
        path = self._session.path("deployments", name, verb, namespace=namespace)
        answer: Json = await self._session.change("POST", path, body=body, key=key)
        return answer


def _applied(answer: Json, plain: Json, deployments: AsyncDeployments) -> AsyncApplied:
    told = answer.get("deployment")
    named = {"kind": "Deployment", "name": plain["name"], "namespace": plain["namespace"]}
    return AsyncApplied(
        deployment={**named, **told} if isinstance(told, dict) else {**named, "id": told},
        revision=_uid(answer.get("revision")),
        operation=_uid(answer.get("operation")),
        changed=bool(answer.get("changed", True)),
        object=answer,
        _deployments=deployments,
    )


def _uid(value: Any) -> str | None:
    """A uid, given as such or as the object that has it."""
    return value.get("id") if isinstance(value, dict) else value
