"""What the app is built from, and how a route gets at it.

One frozen value made by the composition root; nothing in this room builds a store, a clock or a client.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_hex
from typing import Annotated, cast

import httpx
from fastapi import Depends, Header, Path, Request

from moorage.api.auth import Auth
from moorage.api.ports import Commands, Explain, Gateways, Machines
from moorage.control.adopting import Adoption
from moorage.control.authority import Authority
from moorage.control.bindings import Spread
from moorage.control.caches import CacheAsking, MachineCaches
from moorage.control.claims import ClaimAsking
from moorage.control.credentials import Credentials, Principal
from moorage.control.driverelay import DriveRelay
from moorage.control.drives import Drives
from moorage.control.endpoints import Endpoints
from moorage.control.execrelay import ExecRelay
from moorage.control.gateways import Aside
from moorage.control.inventory import Inventories, StockAsking
from moorage.control.keeping import FleetKeeper
from moorage.control.keys import Keys
from moorage.control.logrelay import LogRelay
from moorage.control.logtail import LogTail
from moorage.control.namespaces import Namespaces
from moorage.control.provisions import Provisions
from moorage.control.reading import Reader
from moorage.control.scaling import Scaling
from moorage.control.vault import Vault
from moorage.decide.decision import Ids
from moorage.decide.serving.snapshot import Demand, Load
from moorage.domain.errors import InvalidSpec
from moorage.domain.nouns import Deployment
from moorage.ports import Clock, Store, UsageRows

KEY_MAX = 200
"""Characters of an idempotency key: room for a digest with a prefix, not for a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How the server behaves.

    Args:
        gateway_url: where clients reach the gateway, without a slash at its end.
        gateway_token: with which gateways are asked about single requests.
        allowed_hosts: values of `Host` that are answered; empty answers all.
        body_bytes_max, agent_body_bytes_max: largest request body of people, and of agents and gateways, whose reports
            after an outage carry many log tails.
        wait_s_max: longest long-poll, seconds.
        quiet_s: seconds after which an event stream with nothing to say sends a comment.
    """

    gateway_url: str
    gateway_token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    body_bytes_max: int = 1 << 20
    agent_body_bytes_max: int = 32 << 20
    wait_s_max: float = 55.0
    quiet_s: float = 15.0


def no_stats() -> Mapping[str, float]:
    """Nothing to add to the metrics."""
    return {}


def always_ready() -> str | None:
    """Nothing stands in the way."""
    return None


@dataclass(frozen=True, kw_only=True)
class ApiDeps:
    """The graph.

    Args:
        store, clock: as everywhere.
        usage: what was used with clients' keys; of the same store.
        commands, machines, gateways, explain: the control rooms.
        auth: who bears a token.
        credentials: issues tokens.
        logs: carries questions for log lines; the same one that builds `Work`.
        execs: carries commands to be run beside workers; likewise.
        vault: secrets of namespaces.
        provisions: what machines are given for the workers placed on them.
        authority: signs workers' certificates.
        drives: of namespaces.
        copies: of drives, on their way from machine to machine; the same one that builds `Work`.
        caches: asks machines about the models that they keep; likewise.
        ids: of what adoptions make.
        claims: asks machines about servers that somebody else started; likewise.
        stock: asks machines what is really there; the same one that builds `Work`.
        settings: how the server behaves.
        http: client for asking gateways about a request.
        closing: set by the composition root before it stops the server: long-polls and streams end then.
        keeper: of the scheduler's book, for places in the queue.
        demand: traffic of a deployment, as gateways report it to this control plane.
        aside: its replicas to which gateways send nothing now.
        reached: where the gateway says that clients reach it, if it does; else they do at `settings.gateway_url`.
        spread: how far what is published of an endpoint has come, by its uid.
        load: of a deployment, over the windows of its autoscaler.
        passed: requests and tokens of a namespace in the last minute, by the resource that its quota limits.
        stats: further counters for `/metrics`, by name (`moorage_` and `_total` are put around it).
        gauges: further gauges for `/metrics`, by name.
        readiness: why the server is not ready, or None; asked by `/readyz`.
    """

    store: Store
    usage: UsageRows
    clock: Clock
    commands: Commands
    machines: Machines
    gateways: Gateways
    explain: Explain
    auth: Auth
    credentials: Credentials
    logs: LogRelay
    execs: ExecRelay
    vault: Vault
    provisions: Provisions
    authority: Authority
    drives: Drives
    copies: DriveRelay
    stock: StockAsking
    claims: ClaimAsking
    caches: CacheAsking
    ids: Ids
    settings: ApiSettings
    http: httpx.AsyncClient
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    keeper: FleetKeeper | None = None
    demand: Callable[[Deployment], Demand] | None = None
    aside: Callable[[Deployment], Sequence[Aside]] | None = None
    reached: Callable[[], str | None] | None = None
    spread: Callable[[str], Spread] | None = None
    load: Callable[[Deployment], Load] | None = None
    passed: Callable[[str], Mapping[str, int]] | None = None
    stats: Callable[[], Mapping[str, float]] = no_stats
    gauges: Callable[[], Mapping[str, float]] = no_stats
    readiness: Callable[[], str | None] = always_ready

    @cached_property
    def reader(self) -> Reader:
        """Questions of people."""
        return Reader(
            self.store,
            self.clock,
            self.settings.gateway_url,
            self.keeper,
            self.demand,
            aside=self.aside,
            reached=self.reached,
        )

    @cached_property
    def endpoints(self) -> Endpoints:
        """Names that clients call."""
        return Endpoints(
            self.store,
            self.clock,
            self.ids,
            reader=self.reader,
            spread=self.spread,
        )

    @cached_property
    def client_keys(self) -> Keys:
        """What clients of endpoints show."""
        return Keys(self.store, self.clock, self.ids, usage=self.usage, spread=self.spread)

    @cached_property
    def models(self) -> MachineCaches:
        """The models that machines keep."""
        return MachineCaches(self.store, self.caches, lambda: token_hex(12))

    @cached_property
    def scaling(self) -> Scaling:
        """How deployments scale."""
        return Scaling(self.store, lambda ns, name: self.reader.find(Deployment, ns, name), self.load)

    @cached_property
    def adoption(self) -> Adoption:
        """Servers that somebody else started become deployments."""
        return Adoption(self.store, self.clock, self.ids, claims=self.claims, new_id=lambda: token_hex(12))

    @cached_property
    def inventories(self) -> Inventories:
        """What is really on the machines."""
        return Inventories(self.store, self.clock, self.stock, lambda: token_hex(12))

    @cached_property
    def namespaces(self) -> Namespaces:
        """Namespaces and their quotas."""
        return Namespaces(self.store, self.clock, self.keeper, self.passed)

    @cached_property
    def tail(self) -> LogTail:
        """Logs."""
        return LogTail(self.store, self.logs, self.clock)


async def _deps(request: Request) -> ApiDeps:
    return cast(ApiDeps, request.app.state.deps)


async def _actor(request: Request) -> str:
    return f"person:{principal(request).name}"


async def _key(idempotency_key: Annotated[str | None, Header()] = None) -> str | None:
    if idempotency_key is None:
        return None
    if not (0 < len(idempotency_key) <= KEY_MAX and idempotency_key.isprintable()):
        raise InvalidSpec(
            "the Idempotency-Key cannot be used",
            remedy=f"send 1 to {KEY_MAX} printable characters, a UUID for example",
            errors=[{"path": "Idempotency-Key", "message": "empty, too long or not printable"}],
        )
    return idempotency_key


def principal(request: Request) -> Principal:
    """Who asks; the door put it there."""
    return cast(Principal, request.scope["moorage.principal"])


Deps = Annotated[ApiDeps, Depends(_deps)]
Actor = Annotated[str, Depends(_actor)]
Key = Annotated[str | None, Depends(_key)]
Namespace = Annotated[str, Path(alias="ns", description="namespace")]
"""Path parameters and dependencies shared by the routes."""
