"""What is asked and what is answered, without a word about how it travels; and the narrow seam under the SDK.

`Transport` has two implementations in `transports` (one awaits, one blocks); a test brings its own clock with it.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Args:
        method, path: below the base address.
        query: None values are left out.
        body: JSON, or None for no body.
        headers: beside those of every request.
        limit_s: seconds for the whole of it, answer included (of a stream: for its beginning, and between its parts).
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Trouble(StrEnum):
    """Why no answer came."""

    REFUSED = "refused"
    """nothing took the connection: the request was not seen"""
    BROKEN = "broken"
    """the connection ended; the request may have been acted on"""
    TIMED_OUT = "timed_out"
    """no answer within the limit; the request may have been acted on"""


class NoAnswer(Exception):
    """No answer came. Inside this room only; callers meet `Unavailable`."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble
        self.text = text


class Duplex(Protocol):
    """A connection on which both sides speak. One sender and one receiver at a time may be at it together."""

    async def send(self, message: bytes) -> None:
        """Say something; returns once it is on its way.

        Raises:
            NoAnswer: the connection is gone.
        """
        ...

    async def receive(self) -> bytes | None:
        """What the other side says next; None once it has closed.

        Raises:
            NoAnswer: the connection broke.
        """
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


class Transport(Protocol):
    """Sends calls, and keeps the time by which they are limited."""

    base_url: str

    async def send(self, call: Call) -> Answer:
        """The answer, whatever its status.

        Raises:
            NoAnswer: none came within `call.limit_s`.
        """
        ...

    def stream(self, call: Call) -> AsyncGenerator[str, None]:
        """Lines of an answer that goes on.

        Raises:
            NoAnswer: none came, or it broke off.
            StreamRefused: the status was not 200.
        """
        ...

    async def connect(self, path: str) -> Duplex:
        """A connection on which both sides speak.

        Raises:
            NoAnswer: none came about.
            StreamRefused: it was answered with an error.
        """
        ...

    def monotonic(self) -> float:
        """Seconds that never step."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long."""
        ...

    async def close(self) -> None:
        """Give the connections back."""
        ...


class StreamRefused(Exception):
    """A stream was answered with an error. Inside this room only."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"status {answer.status}")
        self.answer = answer
