"""`AsyncClient`: the SDK for programs with an event loop. `Client` in `sync` is the same, blocking."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from moorage.client.address import Address, find_address
from moorage.client.calls import Transport
from moorage.client.deployments import AsyncDeployments
from moorage.client.fleet import AsyncMachines, AsyncOperations
from moorage.client.runs import AsyncRuns, AsyncWorkers
from moorage.client.session import Session
from moorage.client.transports import AsyncTransport

Json = dict[str, Any]
API = "/api/v1"


def base_headers(token: str | None) -> dict[str, str]:
    """Headers of every request."""
    own = {"Accept": "application/json", "User-Agent": "moorage-client"}
    return {**own, "Authorization": f"Bearer {token}"} if token else own


class AsyncClient:
    """A control plane, from an event loop.

    Args:
        url: address of the control API; None: that in `home`, else http://127.0.0.1:7420.
        token: proves who asks; None: that in `home`, if it is for this address.
        namespace: where names are looked up.
        home: directory that `moor up` writes `client.json` to; None reads none.
        timeout_s: seconds for one request.
        transport: how calls travel, instead of HTTP (tests).
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        namespace: str = "default",
        home: str | Path | None = None,
        timeout_s: float = 30.0,
        transport: Transport | None = None,
    ) -> None:
        self.address: Address = find_address(url, token, home)
        travels = transport or AsyncTransport(self.address.url + API, base_headers(self.address.token))
        self._session = Session(travels, namespace, timeout_s)
        self.deployments = AsyncDeployments(self._session)
        self.runs = AsyncRuns(self._session)
        self.workers = AsyncWorkers(self._session)
        self.machines = AsyncMachines(self._session)
        self.operations = AsyncOperations(self._session)

    @classmethod
    def from_environment(
        cls,
        env: Mapping[str, str],
        *,
        url: str | None = None,
        token: str | None = None,
        namespace: str = "default",
        timeout_s: float = 30.0,
    ) -> Self:
        """The client that an environment means: MOORAGE_URL, MOORAGE_TOKEN, MOORAGE_HOME; arguments win."""
        found = find_address(url, token, None, env)
        client = cls(found.url, found.token, namespace=namespace, timeout_s=timeout_s)
        client.address = found
        return client

    @property
    def namespace(self) -> str:
        """Where names are looked up."""
        return self._session.namespace

    async def health(self) -> Json:
        """Whether it is up and ready for work, in its own words.

        Raises:
            Unavailable: it is not.
        """
        answer: Json = await self._session.get("/health")
        return answer

    async def events(
        self, *, after: str | None = None, follow: bool = False, namespace: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """What happened, oldest first.

        Args:
            after: a cursor of an earlier event; None: from the beginning, or with `follow` from now.
            follow: go on as it happens, across broken connections and restarts.
            namespace: only of this one; None: of all that the token may see.

        Raises:
            Gone: the cursor is not known any more; look at the objects themselves and begin anew.
        """
        if follow:
            async with aclosing(self._session.follow("/events", after, namespace=namespace)) as found:
                async for item in found:
                    yield item
            return
        while True:
            page = await self._session.get("/events", after=after, namespace=namespace)
            for item in page["items"]:
                yield item
            if not page.get("next"):
                return
            after = page["next"]

    async def history(self, name: str, *, namespace: str | None = None) -> list[Json]:
        """Every change of a deployment, else of a run of that name, oldest first."""
        from moorage.domain.errors import NotFound

        try:
            return await self.deployments.history(name, namespace=namespace)
        except NotFound as no_deployment:
            try:
                return await self.runs.history(name, namespace=namespace)
            except NotFound:
                raise no_deployment from None

    async def request(self, request_id: str) -> Json:
        """Where one request went: the value of its X-Request-Id header → endpoint, revision, replica, times."""
        answer: Json = await self._session.get(f"/requests/{quote(request_id, safe='')}")
        return answer

    async def close(self) -> None:
        """Give the connections back."""
        await self._session.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
