"""`/namespaces/{ns}/drives`, and the copies of drives that agents send each other through here."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Body, Query, Request, Response
from starlette.responses import StreamingResponse

from moorage.api.auth import require_machine
from moorage.api.deps import Deps, Namespace, principal
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.domain.errors import Unavailable
from moorage.domain.ids import check_name
from moorage.wire.giving import SecretsRequest

router = under_api("/namespaces/{ns}/drives", tag="drives")
copies = under_api("/agent/drives", tag="agent protocol")

Document = Annotated[dict[str, Any], Body(description="a Drive document; see the specs' JSON Schema")]


@router.get("")
async def list_drives(ns: Namespace, deps: Deps) -> Response:
    """Drives of a namespace."""
    return json_response({"items": await deps.drives.listed(ns), "next": None})


@router.get("/{name}")
async def get_drive(ns: Namespace, name: str, deps: Deps) -> Response:
    """One of them: its size, site and machine, and where its data lies there."""
    return json_response(await deps.drives.get(ns, name))


@router.put("/{name}")
async def apply_drive(ns: Namespace, name: str, document: Document, deps: Deps) -> Response:
    """Make it, or change its size; where no machine is named, the one with the most room keeps it."""
    return json_response(await deps.drives.apply(check_name(ns, "namespace"), check_name(name), document))


@router.delete("/{name}")
async def delete_drive(ns: Namespace, name: str, deps: Deps) -> Response:
    """Forget it; refused while something uses it. Its data stays at `path` on its machine."""
    return json_response(await deps.drives.remove(ns, name))


@copies.get("/{name}")
async def fetch_drive(
    *,
    name: str,
    request: Request,
    deps: Deps,
    worker: Annotated[str, Query(description="worker that is being set up")] = "",
    epoch: Annotated[int, Query()] = 0,
    incarnation: Annotated[str, Query()] = "",
) -> Response:
    """The content of a drive as a tar stream, for the machine on which a worker that takes a copy is set up."""
    who = principal(request)
    require_machine(who, who.machine or "")
    asked = SecretsRequest(machine=who.machine or "", incarnation=incarnation, worker=worker, epoch=epoch)
    namespace, machine = await deps.provisions.drive(asked, name)
    pieces = deps.copies.fetch(machine, namespace, name)
    try:
        first = await anext(pieces)
    except StopAsyncIteration:
        raise Unavailable("the machine that has the drive sent nothing") from None
    return StreamingResponse(_all(first, pieces), media_type="application/x-tar")


@copies.post("/{id}")
async def send_drive(id: str, request: Request, deps: Deps) -> Response:
    """What `Work.drives` asked this machine for."""
    await deps.copies.pass_on(principal(request).machine or "", id, request.stream())
    return Response(status_code=204)


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
