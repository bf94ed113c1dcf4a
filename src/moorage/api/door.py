"""The one middleware, in plain ASGI: what happens to every request before a route sees it.

In order: a request id; the `Host` and `Origin` of browsers that were tricked; the size of the body; who asks and
whether they may. Whatever fails here or is raised past the routes' own handlers is answered with the public error
object. Kept to dictionary look-ups and one hash, since agents and gateways pass here many times a second.
"""

import ipaddress
import re
import secrets
from collections import Counter
from collections.abc import Mapping

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage.api.auth import API, METRICS, OPEN, require
from moorage.api.deps import ApiDeps
from moorage.api.errors import error_response, internal_error
from moorage.domain.errors import Forbidden, MoorageError, TooLarge

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PASSED_ON = f"{API}/agent/drives/"
"""Bodies that are passed on piece by piece and never held, so that they may be of any size."""
UNLIMITED = 1 << 62
FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip")

log = structlog.get_logger("moorage.api")


class Door:
    """The middleware.

    Args:
        app: what comes behind it.
        deps: tokens, limits.
        seen: counts answers by (method, status), for the metrics.
    """

    def __init__(self, app: ASGIApp, deps: ApiDeps, seen: "Counter[tuple[str, int]]") -> None:
        self._app = app
        self._deps = deps
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or pass anything that is none."""
        if scope["type"] == "websocket":
            await self._admit_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, receive, send, self._seen)
        try:
            await self._admit(scope, visit)
            await self._app(scope, visit.receive, visit.send)
        except MoorageError as error:
            if error.category == "internal":
                log.error("request failed", request_id=visit.id, path=scope["path"], exc_info=error)
                error = internal_error()
            await visit.refuse(error)
        except Exception as error:
            log.error("request failed", request_id=visit.id, path=scope["path"], exc_info=error)
            await visit.refuse(internal_error())

    async def _admit_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As a request that changes something: a page of somewhere else may not open one, nor may who has no token."""
        try:
            headers, path = _headers(scope), scope["path"]
            _check_browser("POST", headers, self._deps.settings.allowed_hosts)
            who = await self._deps.auth.principal(headers.get("authorization"))
            require(who, path)
        except MoorageError as error:
            await _deny(error, receive, send, explained="websocket.http.response" in scope.get("extensions", {}))
            return
        scope["moorage.principal"] = who
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope, visit: "_Visit") -> None:
        settings, path = self._deps.settings, scope["path"]
        _check_browser(scope["method"], visit.headers, settings.allowed_hosts)
        people = not path.startswith((f"{API}/agent/", f"{API}/routing/"))
        if not path.startswith(PASSED_ON):
            visit.limit(settings.body_bytes_max if people else settings.agent_body_bytes_max)
        if path in OPEN or (path == METRICS and _is_local(scope, visit.headers)):
            return
        who = await self._deps.auth.principal(visit.headers.get("authorization"))
        require(who, path)
        scope["moorage.principal"] = who


class _Visit:
    """One request on its way in and out."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, seen: "Counter[tuple[str, int]]") -> None:
        self.headers = _headers(scope)
        given = self.headers.get("x-request-id", "")
        self.id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
        self._scope = scope
        self._receive = receive
        self._send = send
        self._seen = seen
        self._started = False
        self._bytes_max = UNLIMITED
        self._bytes = 0

    def limit(self, bytes_max: int) -> None:
        """Refuse a body that says it is larger; one that does not say is counted as it comes."""
        self._bytes_max = bytes_max
        said = self.headers.get("content-length", "")
        if said.isdigit() and int(said) > bytes_max:
            raise _too_large(bytes_max)

    async def receive(self) -> Message:
        """The next piece of the body, counted."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            if self._bytes > self._bytes_max:
                raise _too_large(self._bytes_max)
        return message

    async def send(self, message: Message) -> None:
        """The answer, with the request id put on it."""
        if message["type"] == "http.response.start":
            self._started = True
            self._seen[self._scope["method"], message["status"]] += 1
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self.id.encode())]}
        await self._send(message)

    async def refuse(self, error: MoorageError) -> None:
        """Answer with an error; an answer that has begun is cut by raising, so that nobody takes it for whole."""
        if self._started:
            raise error
        await error_response(error)(self._scope, self._receive, self.send)


async def _deny(error: MoorageError, receive: Receive, send: Send, *, explained: bool) -> None:
    """Refuse a WebSocket: with the public error object where the server can answer so, else with 403."""
    await receive()  # its request to connect
    if not explained:
        await send({"type": "websocket.close", "code": 1008})
        return
    answer = error_response(error)
    start = {"status": answer.status_code, "headers": answer.raw_headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": bytes(answer.body)})


def _headers(scope: Scope) -> dict[str, str]:
    """Headers by small name. A repeated `Host` or `Authorization` is joined and so matches nothing."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        text = value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def _check_browser(method: str, headers: Mapping[str, str], allowed_hosts: tuple[str, ...]) -> None:
    host = headers.get("host", "")
    if allowed_hosts and host.lower() not in allowed_hosts:
        raise Forbidden(f"this server does not answer for host {host!r}", remedy="use the address it was set up with")
    origin = headers.get("origin")
    if origin is not None and method not in SAFE_METHODS and origin.partition("://")[2].lower() != host.lower():
        raise Forbidden(
            f"a page of {origin} may not change anything here", remedy="send no Origin, or use the server's own console"
        )


def _is_local(scope: Scope, headers: Mapping[str, str]) -> bool:
    """From this machine, not through a proxy, and under a name that a page elsewhere cannot have."""
    client = scope.get("client")
    if not client or any(h in headers for h in FORWARDED):
        return False
    name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    return _is_loopback(client[0]) and (name == "localhost" or _is_loopback(name.strip("[]")))


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is larger than {bytes_max} bytes", remedy="send less; put files on a machine or a drive")
