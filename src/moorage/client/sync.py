"""`Client`: the SDK for ordinary programs and for the CLI. No twin of the asynchronous one, but that very one, run.

Every method of the SDK is a coroutine over a `Transport`. Over `BlockingTransport` such a coroutine never suspends:
it is run to its end by one `send(None)`, in the caller's thread, without an event loop. A loop in a thread of its own
was the other way; it costs the import of asyncio and a thread, needs care at exit and with Ctrl-C, and gains nothing
for a caller who waits anyway. So a method exists once, and what it does is the same in both clients.

`blocking` makes the synchronous classes from the asynchronous ones; their signatures for type checkers are generated
into `sync.pyi` by `tools/generate_sync_client.py`.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, cast, get_args

from moorage.client.address import find_address
from moorage.client.aio import AsyncClient, base_headers, surroundings
from moorage.client.applied import AsyncApplied
from moorage.client.deployments import AsyncDeployments
from moorage.client.drives import AsyncDrives
from moorage.client.endpoints import AsyncEndpoints
from moorage.client.events import AsyncEvents
from moorage.client.fleet import AsyncMachines, AsyncOperations
from moorage.client.keys import AsyncKeys
from moorage.client.namespaces import AsyncNamespaces, AsyncQuotas
from moorage.client.patience import Patience, PatientTransport, is_kept
from moorage.client.runs import AsyncReplicas, AsyncRuns, AsyncWorkers
from moorage.client.secrets import AsyncSecrets
from moorage.client.transports import BlockingTransport


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("a coroutine suspended although its transport blocks")


def iterate(items: AsyncGenerator[Any, None]) -> Iterator[Any]:
    """An asynchronous generator that never suspends, as an iterator."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


def blocking(source: type[Any]) -> Callable[[type[Any]], type[Any]]:
    """Give a class, for each public coroutine method of `source`, a method that runs it.

    The class holds an instance of `source` in `_inner`.
    """

    def fill(made: type[Any]) -> type[Any]:
        for name, member in inspect.getmembers(source, inspect.isfunction):
            if (name == "__call__" or not name.startswith("_")) and (
                inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
            ):
                setattr(made, name, _blocked(member))
        made.__doc__ = source.__doc__
        return made

    return fill


def _blocked(method: Callable[..., Any]) -> Callable[..., Any]:
    @_presented(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        work: Any = method(self._inner, *args, **kwargs)
        if isinstance(work, AsyncGenerator):
            return iterate(work)
        value = run(work)
        made = _MADE.get(type(value).__name__)
        return made(value) if made is not None else value

    return call


def _presented(method: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Shown like the method; what is an asynchronous generator there is an iterator here."""

    def present(call: Callable[..., Any]) -> Callable[..., Any]:
        shown: Any = functools.wraps(method)(call)
        if inspect.isasyncgenfunction(method):
            item = get_args(method.__annotations__.get("return"))[:1] or (Any,)
            answer = Iterator[item[0]]  # type: ignore[valid-type]  # known at run time only
            shown.__annotations__ = {**method.__annotations__, "return": answer}
            shown.__signature__ = inspect.signature(method).replace(return_annotation=answer)
        return cast(Callable[..., Any], shown)

    return present


_MADE: dict[str, type[Any]] = {}
"""What methods return of the asynchronous client → its blocking twin."""


class _Blocking:
    """Holds what it blocks for; `fill` gives the class the documentation of that."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner


@blocking(AsyncApplied)
class Applied(_Blocking):
    """`AsyncApplied`, blocking."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner).removeprefix("Async")


class ExecChannel(_Blocking):
    """`AsyncExecChannel`, blocking; filled when the first one is made, since most programs never run a command."""

    def __new__(cls, inner: Any) -> Any:
        """The class is filled once."""
        if not hasattr(cls, "next"):
            blocking(type(inner))(cls)
        return super().__new__(cls)

    @property
    def room(self) -> int:
        """Bytes of input that may be sent now."""
        return int(self._inner.room)


_MADE.update({AsyncApplied.__name__: Applied, "AsyncExecChannel": ExecChannel})


@blocking(AsyncDeployments)
class Deployments(_Blocking):
    """`AsyncDeployments`, blocking."""


@blocking(AsyncEndpoints)
class Endpoints(_Blocking):
    """`AsyncEndpoints`, blocking."""


@blocking(AsyncRuns)
class Runs(_Blocking):
    """`AsyncRuns`, blocking."""


@blocking(AsyncWorkers)
class Workers(_Blocking):
    """`AsyncWorkers`, blocking."""


@blocking(AsyncReplicas)
class Replicas(_Blocking):
    """`AsyncReplicas`, blocking."""


@blocking(AsyncEvents)
class Events(_Blocking):
    """`AsyncEvents`, blocking."""


@blocking(AsyncMachines)
class Machines(_Blocking):
    """`AsyncMachines`, blocking."""


@blocking(AsyncOperations)
class Operations(_Blocking):
    """`AsyncOperations`, blocking."""


@blocking(AsyncKeys)
class Keys(_Blocking):
    """`AsyncKeys`, blocking."""


@blocking(AsyncSecrets)
class Secrets(_Blocking):
    """`AsyncSecrets`, blocking."""


@blocking(AsyncDrives)
class Drives(_Blocking):
    """`AsyncDrives`, blocking."""


@blocking(AsyncNamespaces)
class Namespaces(_Blocking):
    """`AsyncNamespaces`, blocking."""


@blocking(AsyncQuotas)
class Quotas(_Blocking):
    """`AsyncQuotas`, blocking."""


@blocking(AsyncClient)
class Client(_Blocking):
    """`AsyncClient`, blocking."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        namespace: str = "default",
        home: Any = None,
        timeout_s: float = 30.0,
        ca: Any = None,
        transport: Any = None,
    ) -> None:
        address = find_address(url, token, home, surroundings(home, transport))
        travels = transport or BlockingTransport(address.url, base_headers(address.token), ca=ca)
        self._take(AsyncClient(address.url, address.token, namespace=namespace, timeout_s=timeout_s, transport=travels))
        self._inner.address = address

    def _take(self, inner: AsyncClient) -> None:
        super().__init__(inner)
        self.deployments = Deployments(inner.deployments)
        self.endpoints = Endpoints(inner.endpoints)
        self.runs = Runs(inner.runs)
        self.workers = Workers(inner.workers)
        self.replicas = Replicas(inner.replicas)
        self.events = Events(inner.events)
        self.machines = Machines(inner.machines)
        self.operations = Operations(inner.operations)
        self.keys = Keys(inner.keys)
        self.secrets = Secrets(inner.secrets)
        self.drives = Drives(inner.drives)
        self.namespaces = Namespaces(inner.namespaces)
        self.quotas = Quotas(inner.quotas)

    @classmethod
    def from_environment(
        cls,
        env: Any,
        *,
        url: str | None = None,
        token: str | None = None,
        namespace: str = "default",
        timeout_s: float = 30.0,
        patience: Patience | None = None,
    ) -> "Client":
        """See `AsyncClient.from_environment`."""
        found = find_address(url, token, None, env)
        travels: Any = BlockingTransport(found.url, base_headers(found.token))
        if patience is not None:
            travels = PatientTransport(travels, patience, lambda: is_kept(found.home))
        client = cls(found.url, found.token, namespace=namespace, timeout_s=timeout_s, transport=travels)
        client._inner.address = found
        return client

    @property
    def address(self) -> Any:
        """Where it is."""
        return self._inner.address

    @property
    def namespace(self) -> str:
        """Where names are looked up."""
        return str(self._inner.namespace)

    @property
    def url(self) -> str:
        """Where the control plane is."""
        return str(self._inner.url)

    @property
    def gateway_url(self) -> str | None:
        """Where its gateway is, if that is known."""
        found: str | None = self._inner.gateway_url
        return found

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()  # type: ignore[attr-defined]  # given to the class by `blocking`
