"""Connections on which both sides speak, over WebSockets: one that awaits and one that blocks. Loaded when the first is
made, so that nothing else starts slower. Called by `transports`.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus, WebSocketException

from moorage.client.calls import Answer, Duplex, NoAnswer, StreamRefused, Trouble

OPEN_S = 15.0
PING_S = 15.0
MESSAGE_BYTES_MAX = 1 << 20
QUEUED_MAX = 64
"""Messages kept before the other side is told to wait; windows above keep it far below."""


def _options(bearer: str | None) -> dict[str, Any]:
    return {
        "additional_headers": {"Authorization": bearer} if bearer else {},
        "user_agent_header": "moorage-client",
        "compression": None,
        "proxy": None,
        "open_timeout": OPEN_S,
        "close_timeout": 2.0,
        "ping_interval": PING_S,
        "ping_timeout": PING_S,
        "max_size": MESSAGE_BYTES_MAX,
        "max_queue": QUEUED_MAX,
    }


async def connect(base_url: str, path: str, bearer: str | None, trusted: ssl.SSLContext | None) -> Duplex:
    """See `Transport.connect`."""
    from websockets.asyncio import client

    with _told():
        return _Awaiting(await client.connect(_address(base_url, path), ssl=trusted, **_options(bearer)))


def connect_blocking(base_url: str, path: str, bearer: str | None, trusted: ssl.SSLContext | None) -> Duplex:
    """See `Transport.connect`."""
    from websockets.sync import client

    with _told():
        return _Blocking(client.connect(_address(base_url, path), ssl=trusted, **_options(bearer)))


def _address(base_url: str, path: str) -> str:
    return f"ws{base_url.removeprefix('http')}{path}"


class _Awaiting:
    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """See `Duplex`."""
        with _told():
            await self._socket.send(message)

    async def receive(self) -> bytes | None:
        """See `Duplex`."""
        with _told():
            try:
                return _as_bytes(await self._socket.recv())
            except ConnectionClosed as end:
                _raise_unless_closed(end)
                return None

    async def close(self) -> None:
        """See `Duplex`."""
        await self._socket.close()


class _Blocking:
    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """See `Duplex`."""
        with _told():
            self._socket.send(message)

    async def receive(self) -> bytes | None:
        """See `Duplex`."""
        with _told():
            try:
                return _as_bytes(self._socket.recv())
            except ConnectionClosed as end:
                _raise_unless_closed(end)
                return None

    async def close(self) -> None:
        """See `Duplex`."""
        self._socket.close()


def _as_bytes(message: str | bytes) -> bytes:
    return message.encode() if isinstance(message, str) else message


def _raise_unless_closed(end: ConnectionClosed) -> None:
    """Nothing where the other side closed it, for whatever reason it gave; a broken connection goes on up."""
    if not isinstance(end, ConnectionClosedOK) and end.rcvd is None:
        raise end


@contextmanager
def _told() -> Iterator[None]:
    """The library's exceptions as ours."""
    try:
        yield
    except InvalidStatus as refused:
        answer = refused.response
        headers = {name.lower(): value for name, value in answer.headers.raw_items()}
        raise StreamRefused(Answer(answer.status_code, headers, bytes(answer.body or b""))) from refused
    except ConnectionClosed as cause:
        raise NoAnswer(Trouble.BROKEN, str(cause)) from cause
    except TimeoutError as cause:
        raise NoAnswer(Trouble.TIMED_OUT, "no answer in time") from cause
    except OSError as cause:
        raise NoAnswer(Trouble.REFUSED, str(cause) or "no connection") from cause
    except WebSocketException as cause:
        raise NoAnswer(Trouble.BROKEN, str(cause) or type(cause).__name__) from cause
