"""What is read of answers while revisions are compared: when a stream began, and how many tokens it carried.

Here: looking at bytes that pass, none of which is kept back or changed. Not here: the sums (`decide.serving.tally`).
Called by `exchange` and `mirror`, and only for endpoints whose revisions are being compared.
"""

import re

from moorage.decide.serving.routes import RevisionState
from moorage.gateway.heads import ResponseHead

_EVENT = b"\ndata:"
_USAGE = re.compile(rb'"(?:completion_tokens|output_tokens)"\s*:\s*(\d{1,12})')
"""Usage as the chat, completions and responses APIs tell it; a model that writes such text has its quotes escaped."""
_DONE = b"\ndata: [DONE]"
_ERROR = re.compile(rb'\ndata:[ ]*\{\s*"error"\s*:\s*[{"]')
_TAIL_BYTES = 4096
"""Of the end of a stream, where its usage is told."""


class StreamWatch:
    """One answer of server-sent events."""

    __slots__ = ("_before", "_events", "_tail", "first_at")

    def __init__(self) -> None:
        self.first_at = 0.0
        self._events = 0
        self._before = b"\n"
        self._tail = b"\n"

    def feed(self, data: bytes, now: float) -> None:
        """A part of the body, chunk sizes included where it has them."""
        if not data:
            return
        if not self.first_at:
            self.first_at = now
        # What is left of the part before is shorter than a mark, so no mark is counted twice.
        self._events += (self._before + data).count(_EVENT)
        self._before = (self._before + data)[1 - len(_EVENT) :]
        self._tail = data[-_TAIL_BYTES:] if len(data) >= _TAIL_BYTES else (self._tail + data)[-_TAIL_BYTES:]

    def tokens(self) -> int:
        """Of the output as the stream's usage told it, else its events, save the one that only ends it."""
        told = _USAGE.findall(self._tail)
        return (int(told[-1]) if told else 0) or self._events - self._tail.count(_DONE)

    def failed(self) -> bool:
        """Whether the server told of an error in the stream, whose status had been sent."""
        return _ERROR.search(self._tail) is not None


def watch_of(head: ResponseHead) -> StreamWatch | None:
    """What watches the answer of this head; None when it is no stream of events."""
    return StreamWatch() if head.events else None


def compare(
    revision: RevisionState,
    outcome: str,
    status: int,
    *,
    sent_at: float,
    first_at: float,
    ended_at: float,
    watch: StreamWatch | None,
) -> None:
    """Count the end of a request at a revision that is compared with another."""
    comparison = revision.comparison
    if comparison is None:
        return
    if watch is not None and watch.first_at:
        first_at = watch.first_at
    if watch is not None and outcome == "ok" and watch.failed():
        outcome = "upstream_error"
    comparison.ended(
        outcome,
        status,
        sent_at=sent_at,
        first_at=first_at,
        ended_at=ended_at,
        tokens=watch.tokens() if watch is not None else 0,
    )
