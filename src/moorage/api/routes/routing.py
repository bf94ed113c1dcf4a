"""`/routing/…`: what gateways say and ask (described in `moorage.wire.routing`), and `/requests/{id}`."""

from typing import Annotated, cast

from fastapi import Query, Request, Response

from moorage.api.bodies import described, read, write
from moorage.api.deps import Deps
from moorage.api.errors import json_response
from moorage.api.gateways import GatewayBook
from moorage.api.mounting import under_api
from moorage.api.streams import while_connected
from moorage.wire.routing import GatewayReport, GatewayReportAnswer, RequestRecord, RoutingTable

router = under_api(tag="gateway protocol")

MESSAGES = (RoutingTable, GatewayReport, GatewayReportAnswer, RequestRecord)


@router.get("/routing/table", openapi_extra=described(None, RoutingTable))
async def table(
    *,
    request: Request,
    deps: Deps,
    incarnation: str | None = None,
    after: int = -1,
    access: int = 0,
    wait_s: Annotated[float, Query(ge=0)] = 0.0,
) -> Response:
    """Long-poll for a table newer than (incarnation, after); 204 when there is none within `wait_s` seconds."""
    waiting = deps.gateways.table(incarnation, after, min(wait_s, deps.settings.wait_s_max), access)
    return write(await while_connected(request, deps.closing, waiting))


@router.post("/routing/report", openapi_extra=described(GatewayReport, GatewayReportAnswer))
async def report(request: Request, deps: Deps) -> Response:
    """Confirms a generation and says what is in flight and held."""
    message = await read(request, GatewayReport)
    _book(request).remember(message.gateway, message.address)
    return write(await deps.gateways.report(message))


@router.get("/requests/{id}", openapi_extra=described(None, RequestRecord))
async def request_record(id: str, request: Request) -> Response:
    """Which revision, replica, worker and machine answered one request, as the gateway that had it tells."""
    return json_response(await _book(request).request(id))


def _book(request: Request) -> GatewayBook:
    return cast(GatewayBook, request.app.state.gateways)
