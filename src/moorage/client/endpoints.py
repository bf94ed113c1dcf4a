"""Endpoints: names that clients call, and the deployments that answer for them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.client.deployments import selector
from moorage.client.documents import Spec, plain_document
from moorage.client.session import INTERVAL_S, Session

if TYPE_CHECKING:
    from moorage.client.watching import Outcome

Json = dict[str, Any]
Items = list[Json]

WHOLE = 100
"""Weight of a deployment that is named without one."""


class AsyncEndpoints:
    """`client.endpoints`. Every method takes `namespace`; None is the client's own."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def apply(
        self, spec: Spec, *, key: str | None = None, create_only: bool = False, timeout_s: float | None = None
    ) -> Json:
        """Make it so: `{endpoint, changed, warnings}`, once it is durable. The same spec again changes nothing.

        Args:
            spec: a document, a mapping of its fields, or the path of a file with one.
            key: idempotency key; None draws one.
            create_only: refuse where an endpoint of that name exists.
            timeout_s: for the answer, where that is less than the client's usual.

        Raises:
            InvalidSpec: the spec is wrong, or names a deployment that is not there.
            Conflict: a deployment or a run has the name, or what it names is being deleted.
        """
        plain = plain_document(spec, "Endpoint", self._session.namespace)
        path = self._session.path("endpoints", plain["name"], namespace=plain["namespace"])
        headers = {"If-None-Match": "*"} if create_only else None
        answer: Json = await self._session.change(
            "PUT", path, body=plain, key=key, headers=headers, timeout_s=timeout_s
        )
        return answer

    async def bind(
        self, name: str, routes: Mapping[str, int] | str, *, key: str | None = None, namespace: str | None = None
    ) -> Json:
        """Bind it to other deployments, its limits and labels as they are; made where there is none. As `apply`.

        Args:
            name: of the endpoint.
            routes: weight by deployment, or the one deployment that gets everything.
            key: idempotency key; None draws one.
        """
        weights = {routes: WHOLE} if isinstance(routes, str) else routes
        body = {"routes": [{"deployment": deployment, "weight": weight} for deployment, weight in weights.items()]}
        path = self._session.path("endpoints", name, "bind", namespace=namespace)
        answer: Json = await self._session.change("POST", path, body=body, key=key)
        return answer

    async def plan(self, spec: Spec) -> Json:
        """What an apply would change: `changes`, `actions`, `warnings`, `touches`. Nothing is written."""
        plain = plain_document(spec, "Endpoint", self._session.namespace)
        path = self._session.path("endpoints", plain["name"], "plan", namespace=plain["namespace"])
        answer: Json = await self._session.change("POST", path, body=plain)
        return answer

    async def get(self, name: str, *, namespace: str | None = None, deleted: bool = False) -> Json:
        """One of them, or the one that a deployment has of its own; with `deleted`, the tombstone of one that is gone.

        Raises:
            NotFound: nothing is reached by that name.
        """
        path = self._session.path("endpoints", name, namespace=namespace)
        answer: Json = await self._session.get(path, deleted="true" if deleted else None)
        return answer

    async def list(
        self,
        *,
        own: bool = False,
        labels: Mapping[str, str] | str | None = None,
        deleted: bool = False,
        namespace: str | None = None,
    ) -> Items:
        """Those that people made.

        Args:
            own: also those that deployments have of their own.
            labels: only those with these; a mapping, or a selector (`team=search,tier!=dev`).
            deleted: tombstones instead.
        """
        path = self._session.path("endpoints", namespace=namespace)
        asked: dict[str, Any] = {"own": "true" if own else None, "deleted": "true" if deleted else None}
        return await self._session.all(path, labels=selector(labels), **asked)

    async def delete(
        self, name: str, *, dry_run: bool = False, key: str | None = None, namespace: str | None = None
    ) -> Json:
        """Take it away: `{endpoint, deleted}`; `dry_run` only tells what that touches. Requests in flight end."""
        path = self._session.path("endpoints", name, namespace=namespace)
        answer: Json = await self._session.change("DELETE", path, key=key, dry_run="true" if dry_run else None)
        return answer

    async def history(self, name: str, *, namespace: str | None = None) -> Items:
        """Every binding and limit it had, oldest first; also of a deleted one."""
        return await self._session.all(self._session.path("endpoints", name, "history", namespace=namespace))

    async def why(self, name: str, *, namespace: str | None = None) -> Json:
        """Which deployments answer for it, and their state."""
        answer: Json = await self._session.get(self._session.path("endpoints", name, "why", namespace=namespace))
        return answer

    async def wait(
        self,
        name: str,
        *,
        timeout_s: float | None = 60.0,
        interval_s: float = INTERVAL_S,
        on_status: Callable[[Json], None] | None = None,
        namespace: str | None = None,
    ) -> "Outcome":
        """Wait until every gateway that may route has it as it is now.

        Args:
            name: of the endpoint.
            timeout_s: None waits for ever.
            interval_s: seconds between two reads.
            on_status: called with each endpoint object read.

        Raises:
            WaitFailed: it was deleted meanwhile.
            WaitTimeout: time is over; it says which gateway has not confirmed.
            NotFound: there was none to begin with.
        """
        from moorage.client.endpoint_wait import wait_for_endpoint
        from moorage.client.watching import watch_of

        where = namespace or self._session.namespace
        how: dict[str, Any] = {"timeout_s": timeout_s, "interval_s": interval_s, "on_status": on_status}
        return await wait_for_endpoint(
            self._session, where, watch_of("Endpoint", ("bound",), where, name, "bound", **how)
        )
