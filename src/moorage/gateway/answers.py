"""The gateway's own answers as bytes: errors in OpenAI's shape, JSON and text documents.

Not here: when they are sent. Called by `frontend` and `own`.
"""

import asyncio
import json
from http import HTTPStatus
from math import ceil

_ASKED_WRONGLY = frozenset((501, 505))
"""A method or a version of HTTP that nobody has, which the client chose."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def error_type(status: int) -> str:
    """OpenAI's word for a class of errors."""
    if status == 429:
        return "rate_limit_error"
    if status in (401, 403):
        return "authentication_error"
    return "invalid_request_error" if status < 500 or status in _ASKED_WRONGLY else "server_error"


def error_body(status: int, code: str, message: str) -> bytes:
    """`{"error": {…}}`."""
    error = {"message": message, "type": error_type(status), "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def document(
    status: int,
    body: bytes,
    *,
    content_type: str = "application/json",
    request_id: bytes = b"",
    retry_after_s: float | None = None,
    lines: bytes = b"",
    close: bool = False,
    head_only: bool = False,
) -> bytes:
    """A whole answer. `retry_after_s` is rounded up to seconds, as the header wants; `lines` are more header lines."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    told = [f"HTTP/1.1 {status} {phrase}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    if retry_after_s is not None:
        told.append(f"Retry-After: {max(1, ceil(retry_after_s))}")
    if close:
        told.append("Connection: close")
    head = "\r\n".join(told).encode() + b"\r\n" + lines
    if request_id:
        head += b"X-Request-Id: " + request_id + b"\r\n"
    return head + b"\r\n" + (b"" if head_only else body)


def forwarded(transport: asyncio.BaseTransport) -> bytes:
    """Header lines that tell a model server who sent a request, and how; nothing where the address is not known."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return b""
    scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
    return f"X-Forwarded-For: {peer[0]}\r\nX-Forwarded-Proto: {scheme}\r\n".encode()
