"""Errors as HTTP answers: always the one public error object, whatever raised.

Called by `door` (what fails before a route) and by the exception handlers that `app` installs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from moorage.api.streams import ClientGone
from moorage.domain.errors import Forbidden, InvalidSpec, MoorageError, Unauthorized
from moorage.wire.problems import sentence

CLIENT_GONE = 499
"""What proxies write for a client that closed before its answer."""


def error_response(error: MoorageError) -> Response:
    """The answer to a public error."""
    return json_response(error.to_wire(), error.status, _headers(error))


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Compact JSON."""
    body = orjson.dumps(value, default=_plain)
    return Response(body, status, headers, media_type="application/json")


def _plain(value: Any) -> Any:
    """Read-only mappings of rows; everything else of them is plain."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def internal_error() -> MoorageError:
    """What a defect of ours looks like from outside; the log has the rest."""
    return MoorageError(
        "the server met an error of its own",
        code="internal",
        retryable=True,
        remedy="try again; if it stays, look for the request id in the server's log and report it",
    )


def invalid_message(error: ValidationError, what: str) -> InvalidSpec:
    """A message of the agent or gateway protocol that is not one."""
    return invalid_request(error.errors(include_url=False), what)


def invalid_request(errors: Sequence[Mapping[str, Any]], what: str) -> InvalidSpec:
    """Pydantic's errors as ours. What was sent is not repeated: it may be a secret."""
    told = [{key: value for key, value in e.items() if key != "input"} for e in errors]
    found = [{"path": _path(e["loc"]), "message": sentence(e)} for e in told]
    shown = "; ".join(f"{f['path']}: {f['message']}" if f["path"] else f["message"] for f in found[:3])
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return InvalidSpec(
        f"{what} is not valid: {shown}{more}",
        errors=found,
        remedy="correct the named places; /api/v1/openapi.json describes every request",
    )


def install(app: FastAPI) -> None:
    """Answer every exception that a route may raise with the public error object."""

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, MoorageError)
        if error.category == "internal":
            raise error  # a defect: the door logs it and answers as for any other
        return error_response(error)

    async def validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(invalid_request(error.errors(), "the request"))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, MoorageError):  # the body was too large, met while the framework read it
            return error_response(error.__cause__)
        return _http_response(request, error)

    async def gone(_: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)  # nobody reads it

    app.add_exception_handler(MoorageError, ours)
    app.add_exception_handler(ClientGone, gone)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(HTTPException, http)


def _http_response(request: Request, error: HTTPException) -> Response:
    """What the framework itself refuses: no such path, no such method."""
    path = request.url.path
    if error.status_code == 404:
        value = MoorageError(f"there is no path {path}", code="not_found", remedy="see /api/v1/openapi.json").to_wire()
        value["category"] = "missing"
    elif error.status_code == 405:
        value = MoorageError(f"{path} takes no {request.method}", code="method_not_allowed").to_wire()
        value["category"] = "invalid"
        value["remedy"] = "see /api/v1/openapi.json for the methods of each path"
    else:
        value = MoorageError(str(error.detail), code="bad_request").to_wire()
        value["category"] = "invalid"
    return json_response(value, error.status_code, error.headers)


def _headers(error: MoorageError) -> dict[str, str]:
    headers = {}
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
    elif error.status in (429, 503):
        headers["Retry-After"] = "1"
    if isinstance(error, Unauthorized) and not isinstance(error, Forbidden):
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def _path(loc: Sequence[str | int]) -> str:
    """`("body", "min")` → `min`; `("query", "limit")` → `query.limit`."""
    parts = [str(p) for p in loc]
    return ".".join(parts[1:] if parts[:1] == ["body"] else parts)
