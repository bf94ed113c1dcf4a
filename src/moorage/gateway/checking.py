"""Whether a replica still is the model that the table says, asked of it while no lease of the control plane holds.

While a lease holds, no port of a replica is given to another server before this gateway has confirmed a table without
it. Without one nothing says so: agents may have gone on, and a machine may have started something else there. So each
new connection is asked `GET /v1/models` first, and only then fed. Connections from before stay with the process that
took them. Not here: what becomes of the request (`hub`).
"""

import asyncio
import json
from typing import TYPE_CHECKING, Final

from moorage.gateway.framing import ChunkCounter
from moorage.gateway.heads import RequestHead, RequestReader, ResponseHead
from moorage.gateway.pools import Pool

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub
    from moorage.gateway.upstream import UpstreamConnection

_LIST_BYTES_MAX: Final = 1024 * 1024


class Unchecked(OSError):
    """It cannot be told what the replica serves, so it is not fed: for now as if it could not be reached."""


class OtherModel(OSError):
    """It serves something else: it gets nothing more until a newer table names it."""


class ModelCheck:
    """One question. Towards the replica it stands where a client would (`upstream.Receiver`)."""

    __slots__ = ("_body", "_payload", "_size", "_status", "done", "head", "hub")

    def __init__(self, hub: "Hub") -> None:
        self.hub = hub
        self.head: RequestHead = _read(_QUESTION)
        self.done: asyncio.Future[tuple[int, bytes]] = hub.loop.create_future()
        self._status = 0
        self._body: list[bytes] = []
        self._size = 0
        self._payload: list[bytes] | None = None

    @property
    def request_sent(self) -> bool:
        """It was sent whole."""
        return True

    def unchunk(self, counter: ChunkCounter) -> None:
        """The list comes in chunks."""
        self._payload = counter.payload = []

    def respond(self, head: ResponseHead, body: bytes) -> None:
        """The answer's head came, with a part of its body."""
        self._status = head.status
        self.forward(body)

    def forward(self, data: bytes) -> None:
        """More of the body came."""
        if self._payload is not None:
            data = b"".join(self._payload)
            self._payload.clear()
        self._size += len(data)
        if self._size <= _LIST_BYTES_MAX:
            self._body.append(data)

    def response_done(self) -> None:
        """The answer ended as it should."""
        if not self.done.done():
            self.done.set_result((self._status, b"".join(self._body)))

    def upstream_failed(self) -> None:
        """The replica closed or broke the protocol."""
        if not self.done.done():
            self.done.set_exception(Unchecked("it closed the connection when it was asked for its models"))

    def switch(self, upstream: "UpstreamConnection", head: ResponseHead, rest: bytes) -> bool:
        """Nothing of the kind was asked for."""
        return False

    def pause_body(self) -> None:
        """The question is short."""

    def resume_body(self) -> None:
        """As `pause_body`."""


async def check(hub: "Hub", connection: "UpstreamConnection", model: str) -> None:
    """Ask over a new connection, which can be fed afterwards.

    Args:
        model: what it must list.

    Raises:
        OtherModel: it lists other models.
        Unchecked: it does not tell, or closes after its answer, so that nobody knows who would take the next one.
    """
    kept, connection.pool = connection.pool, Pool()
    question = ModelCheck(hub)
    connection.begin(question, _QUESTION)
    status, body = await question.done
    if connection not in connection.pool.idle:
        raise Unchecked("it closes connections after each answer, so that none can be checked before it is fed")
    connection.pool.idle.clear()
    connection.pool = kept
    connection.idle_since = 0.0  # as new as before
    listed = _listed(status, body)
    if model not in listed:
        raise OtherModel(f"it serves {', '.join(sorted(listed)[:3]) or 'nothing'} instead of {model}")


def _listed(status: int, body: bytes) -> set[str]:
    if status != 200:
        raise Unchecked(f"it answered {status} when it was asked for its models")
    try:
        return {entry["id"] for entry in json.loads(body)["data"] if isinstance(entry["id"], str)}
    except (ValueError, KeyError, TypeError) as error:
        raise Unchecked("its list of models cannot be read") from error


_QUESTION: Final = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"


def _read(text: bytes) -> RequestHead:
    return RequestReader(lambda hosts, origins: None).read(text)
