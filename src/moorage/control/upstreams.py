"""Servers that somebody else started: looked at every few seconds, and ended where that is ours to do and asked for.

What a look means is decided in `decide/serving/adopted`; here are the calls to the server and to its machine. A loop of
its own, since a server that hangs must not hold up anything else.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import httpx

from moorage.control.claims import ClaimAsking
from moorage.decide.decision import Decision
from moorage.decide.serving import adopted
from moorage.decide.serving.adopted import Probe
from moorage.decide.serving.snapshot import Demand
from moorage.domain.changes import Fence
from moorage.domain.nouns import Deployment
from moorage.domain.states import DeploymentStatus
from moorage.ports import Clock, Store
from moorage.wire.claim import ClaimRequest

LOOK_S = 5.0
"""Between two looks at one that is in use, as replicas are probed."""
ANSWER_S = 5.0
"""So long one look may take."""
GRACE_S = 20.0
END_S = GRACE_S + 30.0
"""So long a machine may take to end one and say so."""
AGAIN_S = 5.0
"""Until the next try of an end that was not proven."""


class Traffic(Protocol):
    """What is known of a deployment's requests."""

    def demand(self, deployment: Deployment) -> Demand:
        """Now."""
        ...


class UpstreamsStep:
    """Looks at one adopted server, or has it ended.

    Args:
        store, clock: outside.
        http: calls to servers.
        traffic: whether requests of ours are still in flight there.
        claims: to machines.
        new_id: unguessable ids.

    Attributes:
        draining: those whose end waits for the last of our requests there; news of other traffic concern nothing here.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        http: httpx.AsyncClient,
        *,
        traffic: Traffic,
        claims: ClaimAsking,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._http = http
        self._traffic = traffic
        self._claims = claims
        self._new_id = new_id
        self.draining: set[str] = set()
        self.fence: Fence | None = None

    async def everything(self) -> Iterable[str]:
        """Every adopted deployment."""
        return [d.uid for d in await self._store.find(Deployment) if d.upstream is not None]

    async def __call__(self, uid: str) -> float | None:
        """One of them; returns when to look again."""
        deployment = await self._store.get(Deployment, uid)
        self.draining.discard(uid)
        if deployment is None or deployment.upstream is None:
            return None
        if deployment.deleting or deployment.status is DeploymentStatus.STOPPED:
            return await self._end(deployment)
        found = await probe(self._http, deployment)
        current = await self._store.get(Deployment, uid)  # the look took its time
        if current is not None and current.upstream is not None:
            await self._commit(adopted.seen(current, found, self._clock.now(), self.fence))
        return self._clock.now() + LOOK_S

    async def _end(self, deployment: Deployment) -> float | None:
        """Have it ended, once it is withdrawn and drained; nothing where it is not ours to end."""
        if not adopted.wants_end(deployment, self._traffic.demand(deployment)):
            self.draining.add(deployment.uid)
            return None  # gateways' confirmations and the end of the last request mark it again
        upstream: Mapping[str, Any] = deployment.upstream or {}
        request = ClaimRequest(
            id=self._new_id(),
            action="end",
            resource=str(upstream["resource"]),
            proof=dict(upstream.get("proof") or {}),
            grace_s=GRACE_S,
        )
        answer = await self._claims.ask(str(upstream["machine"]), request, END_S)
        error: str | None = None
        if answer is None:
            error = f"its machine {upstream.get('machine_name')} does not answer"
        elif not answer.gone:
            error = answer.error or "it still runs"
        current = await self._store.get(Deployment, deployment.uid)
        if current is not None and current.upstream is not None:
            await self._commit(adopted.ended(current, error, self._clock.now(), self.fence))
        return None if error is None else self._clock.now() + AGAIN_S

    async def _commit(self, decision: Decision) -> None:
        if decision.change is not None:
            await self._store.commit(decision.change)


async def probe(http: httpx.AsyncClient, deployment: Deployment) -> Probe:
    """One look: it lists the models that it should, or where none is named, answers at all."""
    url = str(dict(deployment.upstream or {})["url"]).rstrip("/")
    model: Mapping[str, Any] = dict(deployment.spec).get("model") or {}
    wanted = [str(m) for m in (model.get("id"), *(model.get("aliases") or ())) if m]
    try:
        answer = await http.get(f"{url}/v1/models", timeout=ANSWER_S)
        models = _listed(answer)
        if wanted:
            return _judged(answer, models, wanted)
        if answer.is_success:
            return Probe(True, None, models)
        health = await http.get(f"{url}/health", timeout=ANSWER_S)
    except httpx.HTTPError as cause:
        return Probe(False, _plain(cause))
    if health.is_success:
        return Probe(True)
    return Probe(False, f"/v1/models answers {answer.status_code}, and /health {health.status_code}")


def _plain(cause: Exception) -> str:
    if isinstance(cause, httpx.TimeoutException):
        return f"no answer within {ANSWER_S:.0f} s"
    if isinstance(cause, httpx.ConnectError):
        return "nothing answers at its address"
    return f"{type(cause).__name__}: {cause}".rstrip(": ")


def _judged(answer: httpx.Response, models: tuple[str, ...], wanted: list[str]) -> Probe:
    if not answer.is_success:
        return Probe(False, f"/v1/models answers {answer.status_code}")
    missing = [m for m in wanted if m not in models]
    if missing:
        listed = ", ".join(models) or "none"
        return Probe(False, f"it does not list {', '.join(missing)} (it lists: {listed})", models)
    return Probe(True, None, models)


def _listed(answer: httpx.Response) -> tuple[str, ...]:
    """Model ids of an OpenAI-shaped list; none where it is anything else."""
    try:
        rows = answer.json()["data"] if answer.is_success else []
        return tuple(sorted(str(row["id"]) for row in rows))
    except (ValueError, KeyError, TypeError):
        return ()
