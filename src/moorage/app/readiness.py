"""Whether the parts answer: the API, the gateway, and this machine's agent as the API sees it. Called by `up`.

Plain `http.client`: each question is one short request to this machine.
"""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from moorage.app.home import Home, machine_name
from moorage.app.settings import Settings

PROBE_TIMEOUT_S = 2.0
"""For each step of a probe, and for all of it together: an answer that trickles in is none."""


def missing(home: Home, settings: Settings) -> Iterator[tuple[str, str]]:
    """(part, what is still waited for), for each part that does not answer yet; nothing when all do."""
    if _status(settings.api.url, "/readyz") != 200:
        yield "server", f"the API at {settings.api.url}"
        return
    if _status(settings.gateway_url, "/readyz") != 200:
        yield "gateway", f"the gateway at {settings.gateway_url}"
    name = machine_name()
    state = _machine_state(settings.api.url, home.token("admin"), name)
    if state != "Ready":
        yield "agent", f"machine {name} ({state or 'not joined yet'})"


def _machine_state(url: str, token: str, name: str) -> str | None:
    status, body = get(url, f"/api/v1/machines/{name}", token)
    return body.get("state") if status == 200 else None


def _status(url: str, path: str) -> int | None:
    return get(url, path)[0]


def get(url: str, path: str, token: str | None = None) -> tuple[int | None, dict[str, Any]]:
    """(status, JSON body) of a GET; (None, {}) when nothing answers."""
    return ask("GET", url, path, token)


def ask(
    method: str, url: str, path: str, token: str | None = None, *, body: str | None = None
) -> tuple[int | None, dict[str, Any]]:
    """(status, JSON body) of one request; (None, {}) when nothing answers."""
    connection = _connection(url, secret=token is not None)
    limit = threading.Timer(PROBE_TIMEOUT_S, _cut, (connection,))
    limit.daemon = True
    limit.start()
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body, headers | ({"Content-Type": "application/json"} if body else {}))
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException):
        return None, {}
    finally:
        limit.cancel()
        connection.close()
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    return answer.status, found if isinstance(found, dict) else {}


def _connection(url: str, *, secret: bool) -> http.client.HTTPConnection:
    """A connection to there, not opened yet.

    Args:
        secret: what is sent is for nobody else. Whether our own gateway answers can be asked of anybody: its
            certificate is for the names that its clients use, and this machine's address is seldom one of them.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, parts.port, timeout=PROBE_TIMEOUT_S)
    context = ssl.create_default_context()
    if not secret:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, parts.port, timeout=PROBE_TIMEOUT_S, context=context)


def _cut(connection: http.client.HTTPConnection) -> None:
    """End an exchange that has taken its time; whoever waits for it then sees the end of the stream."""
    with contextlib.suppress(OSError, AttributeError):  # it was closed just now
        connection.sock.shutdown(socket.SHUT_RDWR)
