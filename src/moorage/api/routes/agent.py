"""`/agent/…`: what agents say and ask. Described in `moorage.wire.agent`.

An agent speaks for the machine its credential was issued to and for no other. These handlers are on the way from a
crash to its replacement: one parse, one call, one dump.
"""

from typing import Annotated

from fastapi import Query, Request, Response

from moorage.api.auth import require_machine
from moorage.api.bodies import described, read, write
from moorage.api.deps import Deps, principal
from moorage.api.mounting import under_api
from moorage.api.streams import while_connected
from moorage.control.credentials import Role
from moorage.domain.errors import Forbidden, NotFound
from moorage.wire.agent import (
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Joined,
    LogLines,
    Reconcile,
    ReconcileAnswer,
    Report,
    ReportAnswer,
    Work,
)
from moorage.wire.cache import CacheAnswer
from moorage.wire.claim import ClaimAnswer
from moorage.wire.giving import IdentityAnswer, SecretsAnswer, SecretsRequest
from moorage.wire.inventory import InventoryAnswer

router = under_api("/agent", tag="agent protocol")

MESSAGES = (
    Join,
    Joined,
    Reconcile,
    ReconcileAnswer,
    Heartbeat,
    HeartbeatAnswer,
    Report,
    ReportAnswer,
    Work,
    LogLines,
    SecretsRequest,
    SecretsAnswer,
    IdentityAnswer,
    InventoryAnswer,
    CacheAnswer,
    ClaimAnswer,
)


@router.post("/join", openapi_extra=described(Join, Joined))
async def join(request: Request, deps: Deps) -> Response:
    """An agent starts. With a join token it is given its own credential, once; one that it had stops working."""
    message, who = await read(request, Join), principal(request)
    if who.role is Role.AGENT and who.name != message.name:
        raise Forbidden(
            f"the credential of machine {who.name} cannot join as {message.name}",
            remedy="join under the machine's own name, or with a join token",
            target=f"Machine {message.name}",
        )
    joined = await deps.machines.join(message, who)
    if who.role is Role.JOIN and joined.credential is None:
        credential = await deps.credentials.issue_agent(joined.machine, message.name)
        joined = joined.model_copy(update={"credential": credential})
    return write(joined)


@router.post("/reconcile", openapi_extra=described(Reconcile, ReconcileAnswer))
async def reconcile(request: Request, deps: Deps) -> Response:
    """What the machine still runs; which of it to keep."""
    message = await read(request, Reconcile)
    require_machine(principal(request), message.machine)
    return write(await deps.machines.reconcile(message))


@router.post("/heartbeat", openapi_extra=described(Heartbeat, HeartbeatAnswer))
async def heartbeat(request: Request, deps: Deps) -> Response:
    """Renews the machine's lease."""
    message = await read(request, Heartbeat)
    require_machine(principal(request), message.machine)
    return write(await deps.machines.heartbeat(message))


@router.post("/report", openapi_extra=described(Report, ReportAnswer))
async def report(request: Request, deps: Deps) -> Response:
    """What the machine saw, in order; answered once it is durable."""
    message = await read(request, Report)
    require_machine(principal(request), message.machine)
    return write(await deps.machines.report(message))


@router.get("/work", openapi_extra=described(None, Work))
async def work(
    *,
    request: Request,
    deps: Deps,
    incarnation: str = "",
    machine: Annotated[str | None, Query(description="the agent's own machine, if given")] = None,
    after: int = 0,
    wait_s: Annotated[float, Query(ge=0)] = 0.0,
) -> Response:
    """Long-poll for the machine's whole desired set; 204 when nothing changed within `wait_s` seconds."""
    who = principal(request)
    require_machine(who, machine or who.machine or "")
    waiting = deps.machines.work(who.machine or "", incarnation, after, min(wait_s, deps.settings.wait_s_max))
    answer = await while_connected(request, deps.closing, waiting)
    if answer is not None:
        deps.logs.sent(question.id for question in answer.logs)
        deps.execs.sent(wish.id for wish in answer.execs)
    return write(answer)


@router.post("/secrets", openapi_extra=described(SecretsRequest, SecretsAnswer))
async def secrets(request: Request, deps: Deps) -> Response:
    """The secret values of one worker, for the machine that it is placed on."""
    message = await read(request, SecretsRequest)
    require_machine(principal(request), message.machine)
    answer = write(await deps.provisions.secrets(message))
    answer.headers["Cache-Control"] = "no-store"
    return answer


@router.post("/identity", openapi_extra=described(SecretsRequest, IdentityAnswer))
async def identity(request: Request, deps: Deps) -> Response:
    """A certificate for one worker, for the machine that it is placed on."""
    message = await read(request, SecretsRequest)
    require_machine(principal(request), message.machine)
    answer = write(await deps.provisions.identity(message))
    answer.headers["Cache-Control"] = "no-store"
    return answer


@router.post("/inventory/{id}", openapi_extra=described(InventoryAnswer, None))
async def answer_inventory(id: str, request: Request, deps: Deps) -> Response:
    """What is on the machine, as `Work.inventories` asked; 404 when nobody waits for it any more."""
    deps.stock.answer(principal(request).machine or "", id, await read(request, InventoryAnswer))
    return Response(status_code=204)


@router.post("/caches/{id}", openapi_extra=described(CacheAnswer, None))
async def answer_cache(id: str, request: Request, deps: Deps) -> Response:
    """The models that the machine keeps, as `Work.caches` asked; 404 when nobody waits for it any more."""
    deps.caches.answer(principal(request).machine or "", id, await read(request, CacheAnswer))
    return Response(status_code=204)


@router.post("/claims/{id}", openapi_extra=described(ClaimAnswer, None))
async def answer_claim(id: str, request: Request, deps: Deps) -> Response:
    """What a server is that somebody else started, as `Work.claims` asked; 404 when nobody waits for it any more."""
    deps.claims.answer(principal(request).machine or "", id, await read(request, ClaimAnswer))
    return Response(status_code=204)


@router.post("/logs/{id}", openapi_extra=described(LogLines, None))
async def answer_logs(id: str, request: Request, deps: Deps) -> Response:
    """Lines that a question of `Work.logs` asked for; 404 when nobody waits for them any more."""
    lines = await read(request, LogLines)
    if not await deps.logs.deliver(principal(request).machine or "", id, lines):
        raise NotFound(f"nobody waits for the lines of question {id}", remedy="drop them", code="question_over")
    return Response(status_code=204)
