"""`…/workers/{id}/exec` and `/agent/exec/{id}`: the two WebSockets that a command beside a worker goes through.

The caller's first message says what to run (`wire/exec.py` describes all of them). What is wrong is told in a message
before the connection is closed. The door has asked for the token before either is opened.
"""

import asyncio
from collections.abc import Awaitable
from typing import cast

from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from moorage.api.deps import ApiDeps
from moorage.api.mounting import under_api
from moorage.control.credentials import Principal
from moorage.control.execrelay import as_error
from moorage.domain.errors import InvalidSpec, MoorageError, Unavailable
from moorage.wire import exec as wire
from moorage.wire.exec import ExecOrder
from moorage.wire.problems import sentence

router = under_api(tag="exec")

ORDER_S = 30.0
"""So long a caller may take to say what it wants."""
OVER, REFUSED, UNWANTED = 1000, 4000, 4004


class SocketEnd:
    """A WebSocket as the relay sees it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> bytes | None:
        """The next message; None once it is closed."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        return message.get("bytes") or b""

    async def send(self, message: bytes) -> None:
        """Pass one on; nothing where it is closed."""
        if self._socket.client_state is not WebSocketState.CONNECTED:
            return
        try:
            await self._socket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError):
            return  # it went while the message was on its way; `receive` tells


@router.websocket("/namespaces/{ns}/workers/{id}/exec")
async def run_beside(socket: WebSocket, ns: str, id: str) -> None:
    """Run a command beside a worker."""
    deps, who = _of(socket)
    await socket.accept()
    end, code = SocketEnd(socket), OVER
    try:
        order = await _order(end)
        worker = await deps.execs.find(ns, id)
        await _until_closing(deps, deps.execs.carry(worker, order, end, f"person:{who.name}"))
    except MoorageError as cause:
        await end.send(as_error(cause))
        code = REFUSED
    await _close(socket, code)


@router.websocket("/agent/exec/{id}")
async def serve_beside(socket: WebSocket, id: str) -> None:
    """The agent of the worker's machine serves a command here."""
    deps, who = _of(socket)
    await socket.accept()
    wanted = await deps.execs.attach(who.machine or "", id, SocketEnd(socket))
    await _close(socket, OVER if wanted else UNWANTED)


def _of(socket: WebSocket) -> tuple[ApiDeps, Principal]:
    return cast(ApiDeps, socket.app.state.deps), cast(Principal, socket.scope["moorage.principal"])


async def _order(end: SocketEnd) -> ExecOrder:
    try:
        async with asyncio.timeout(ORDER_S):
            channel, content = wire.read(await end.receive() or b"")
        if channel != wire.TOLD:
            raise InvalidSpec("the first message does not say what to run", code="bad_order")
        return ExecOrder.model_validate_json(content)
    except TimeoutError:
        raise Unavailable(f"nothing was said about what to run within {ORDER_S:g} s", code="bad_order") from None
    except ValidationError as wrong:
        told = [
            {"path": ".".join(map(str, e["loc"])), "message": sentence(e)} for e in wrong.errors(include_input=False)
        ]
        raise InvalidSpec("what to run is not understood", errors=told, code="bad_order") from None


async def _until_closing(deps: ApiDeps, work: Awaitable[None]) -> None:
    """The work's result; a server that stops cuts it off, and says so."""
    carrying = asyncio.ensure_future(work)
    closing = asyncio.create_task(deps.closing.wait())
    try:
        await asyncio.wait({carrying, closing}, return_when=asyncio.FIRST_COMPLETED)
        if not carrying.done():
            raise Unavailable("the control plane is being stopped; what ran is ended", code="connection_lost")
        carrying.result()
    finally:
        for task in (carrying, closing):
            task.cancel()
        await asyncio.gather(carrying, closing, return_exceptions=True)


async def _close(socket: WebSocket, code: int) -> None:
    if socket.client_state is WebSocketState.CONNECTED:
        try:
            await socket.close(code)
        except (WebSocketDisconnect, RuntimeError):
            return  # it went first
