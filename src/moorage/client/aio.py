"""`AsyncClient`: the SDK for programs with an event loop. `Client` in `sync` is the same, blocking."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from moorage.client.address import Address, find_address
from moorage.client.calls import Transport
from moorage.client.deployments import AsyncDeployments
from moorage.client.drives import AsyncDrives
from moorage.client.endpoints import AsyncEndpoints
from moorage.client.environment import environment
from moorage.client.events import AsyncEvents
from moorage.client.fleet import AsyncMachines, AsyncOperations
from moorage.client.keys import AsyncKeys
from moorage.client.namespaces import AsyncNamespaces, AsyncQuotas
from moorage.client.patience import Patience, PatientTransport, is_kept
from moorage.client.runs import AsyncReplicas, AsyncRuns, AsyncWorkers
from moorage.client.secrets import AsyncSecrets
from moorage.client.session import Session, fleet_path
from moorage.client.transports import AsyncTransport
from moorage.domain.errors import NotFound

Json = dict[str, Any]
Items = list[Json]

INVENTORY_S = 60.0
"""Every machine is asked meanwhile, and one that does not answer is waited for a while."""


def base_headers(token: str | None) -> dict[str, str]:
    """Headers of every request."""
    own = {"Accept": "application/json", "User-Agent": "moorage-client"}
    return {**own, "Authorization": f"Bearer {token}"} if token else own


def surroundings(home: str | Path | None, transport: Transport | None) -> Mapping[str, str] | None:
    """The environment, for a client that is not told otherwise: neither a home nor how its calls travel."""
    return environment() if home is None and transport is None else None


class AsyncClient:
    """A control plane, from an event loop. Without arguments it is the one that `moor` talks to in the same shell.

    Args:
        url: address of the control API; None: MOORAGE_URL of the environment, else that in `home`, else
            http://127.0.0.1:7420.
        token: proves who asks; None: MOORAGE_TOKEN, else that in `home`, if it is for this address.
        namespace: where names are looked up.
        home: directory that `moor up` writes `client.json` to, and then no variable is looked at; None: MOORAGE_HOME,
            else `.moorage` in the user's home.
        timeout_s: seconds for one request.
        ca: PEM file of the certificates to believe of an https address; None: those of the system, or of SSL_CERT_FILE.
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
        ca: str | Path | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.address: Address = find_address(url, token, home, surroundings(home, transport))
        travels = transport or AsyncTransport(self.address.url, base_headers(self.address.token), ca=ca)
        self._session = Session(travels, namespace, timeout_s)
        self.deployments = AsyncDeployments(self._session)
        self.endpoints = AsyncEndpoints(self._session)
        self.runs = AsyncRuns(self._session)
        self.workers = AsyncWorkers(self._session)
        self.replicas = AsyncReplicas(self._session)
        self.events = AsyncEvents(self._session)
        self.machines = AsyncMachines(self._session)
        self.operations = AsyncOperations(self._session)
        self.keys = AsyncKeys(self._session)
        self.secrets = AsyncSecrets(self._session)
        self.drives = AsyncDrives(self._session)
        self.namespaces = AsyncNamespaces(self._session)
        self.quotas = AsyncQuotas(self._session)

    @classmethod
    def from_environment(
        cls,
        env: Mapping[str, str],
        *,
        url: str | None = None,
        token: str | None = None,
        namespace: str = "default",
        timeout_s: float = 30.0,
        patience: Patience | None = None,
    ) -> Self:
        """The client that an environment means: MOORAGE_URL, MOORAGE_TOKEN, MOORAGE_HOME; arguments win.

        Args:
            patience: how long to bear restarts of an installation of this machine; None does not.
        """
        found = find_address(url, token, None, env)
        travels: Transport = AsyncTransport(found.url, base_headers(found.token))
        if patience is not None:
            travels = PatientTransport(travels, patience, lambda: is_kept(found.home))
        client = cls(found.url, found.token, namespace=namespace, timeout_s=timeout_s, transport=travels)
        client.address = found
        return client

    @property
    def namespace(self) -> str:
        """Where names are looked up."""
        return self._session.namespace

    @property
    def url(self) -> str:
        """Where the control plane is."""
        return self.address.url

    @property
    def gateway_url(self) -> str | None:
        """Where its gateway is, as `moor up` wrote it down; None where that is not known."""
        return self.address.gateway_url

    async def health(self) -> Json:
        """`{ready: true}`.

        Raises:
            Unavailable: it is not ready, and why.
        """
        answer: Json = await self._session.get("/readyz")
        return answer

    async def server_version(self) -> str:
        """The version that it runs."""
        described = await self._session.get(fleet_path("openapi.json"))
        return str(described["info"]["version"])

    async def history(self, name: str, *, namespace: str | None = None) -> Items:
        """Every change of the deployment, run, endpoint or key of that name, or the worker or replica of that uid."""
        own = (self.endpoints, self.workers, self.replicas, self.keys)
        found: Items = await self._first(name, lambda of: of.history(name, namespace=namespace), *own)
        return found

    async def why(self, name: str, *, namespace: str | None = None) -> Json:
        """Why the deployment, run or endpoint of that name is as it is, and what would alter that."""
        found: Json = await self._first(name, lambda of: of.why(name, namespace=namespace), self.endpoints)
        return found

    async def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        namespace: str | None = None,
        **which: Any,
    ) -> AsyncGenerator[Json, None]:
        """Lines of the deployment, run or worker of that name; `which` lines as for those."""
        of = await self._holder(name, namespace)
        found = of.logs(name, follow=follow, namespace=namespace, **which)
        async with aclosing(found):
            async for line in found:
                yield line

    async def request(self, request_id: str) -> Json:
        """Where one request went: the value of its X-Request-Id header → endpoint, revision, replica, times."""
        answer: Json = await self._session.get(fleet_path("requests", request_id))
        return answer

    async def orphans(self) -> Json:
        """What carries our marks on machines and nothing means: `items`, and `inventory_complete` with what is not."""
        answer: Json = await self._session.get(fleet_path("orphans"), limit_s=INVENTORY_S)
        return answer

    async def inventory(self, *, owner: str | None = None) -> Json:
        """Everything that machines say is there, beside what should be; of one deployment or run, by its uid."""
        answer: Json = await self._session.get(fleet_path("inventory"), limit_s=INVENTORY_S, owner=owner)
        return answer

    async def _first(self, name: str, ask: Callable[[Any], Awaitable[Any]], *others: Any) -> Any:
        """A question to the deployment of that name, else to the run, else to the `others` in turn."""
        missing: NotFound | None = None
        for kind in (self.deployments, self.runs, *others):
            try:
                return await ask(kind)
            except NotFound as error:
                missing = missing or error
        assert missing is not None
        raise missing

    async def _holder(self, name: str, namespace: str | None) -> AsyncDeployments | AsyncRuns | AsyncWorkers:
        """Which kind of object has that name."""
        missing: NotFound | None = None
        kinds: tuple[AsyncDeployments | AsyncRuns | AsyncWorkers, ...] = (self.deployments, self.runs, self.workers)
        for kind in kinds:
            try:
                await kind.get(name, namespace=namespace)
            except NotFound as error:
                missing = missing or error
            else:
                return kind
        assert missing is not None
        raise missing

    async def close(self) -> None:
        """Give the connections back."""
        await self._session.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
