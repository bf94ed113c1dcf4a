"""What one gateway counts by revision: for its metrics always, and as evidence while two revisions are compared.

Here: sums, as `moorage.wire.routing.Evidence` carries them. Not here: sockets, clocks (times are arguments, in
seconds of one monotonic clock). Kept by `routes`, filled by the gateway's rooms.
"""

from moorage.decide.serving.evidence import microseconds, rate_milli
from moorage.domain.histogram import index_of


class Traffic:
    """What happened to requests at one revision since this gateway knows it."""

    __slots__ = ("client_gone", "copies", "copies_dropped", "cut", "passed_over", "statuses", "unreachable")

    def __init__(self) -> None:
        self.statuses = [0] * 6
        """answers by the first digit of their status; 0: none"""
        self.cut = 0
        self.client_gone = 0
        self.unreachable = 0
        """connects that failed"""
        self.passed_over = 0
        """requests whose turn it was and which the active revision answered instead"""
        self.copies = 0
        self.copies_dropped = 0


class Comparison:
    """What was seen of one revision since a comparison began.

    Args:
        since: when it began; what was sent before does not count.
    """

    __slots__ = (
        "changes",
        "client_gone",
        "errors",
        "latency_us",
        "requests",
        "since",
        "throughput_milli",
        "ttft_us",
    )

    def __init__(self, since: float) -> None:
        self.since = since
        self.changes = 0
        """rises with each request counted, so that what was told already is known"""
        self.requests = 0
        self.errors = 0
        self.client_gone = 0
        self.ttft_us: dict[int, int] = {}
        self.latency_us: dict[int, int] = {}
        self.throughput_milli: dict[int, int] = {}

    def unreachable(self) -> None:
        """A connect failed: no answer, though another replica may have given one."""
        self.changes += 1
        self.requests += 1
        self.errors += 1

    def ended(
        self, outcome: str, status: int, *, sent_at: float, first_at: float, ended_at: float, tokens: int
    ) -> None:
        """A request that was sent to the revision ended.

        Args:
            outcome: ok, cut, upstream_error, client_gone, or refused: ended by what the client sent, no word on the
                revision.
            status: of the answer, 0 where none began.
            first_at: of its first byte.
            tokens: output tokens of a streamed answer, or its chunks where it told no usage; 0: nothing to tell.
        """
        if sent_at < self.since or outcome == "refused":
            return
        self.changes += 1
        if outcome == "client_gone":
            self.client_gone += 1
            return
        self.requests += 1
        if outcome != "ok" or status >= 500:
            self.errors += 1
            return
        _count(self.ttft_us, microseconds(first_at - sent_at))
        _count(self.latency_us, microseconds(ended_at - sent_at))
        if tokens and ended_at > sent_at:
            _count(self.throughput_milli, rate_milli(tokens, ended_at - sent_at))


def _count(histogram: dict[int, int], value: int) -> None:
    index = index_of(value)
    histogram[index] = histogram.get(index, 0) + 1
