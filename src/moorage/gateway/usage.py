"""What clients use with their keys: sums by key, endpoint and day, told to the control plane until it has them on disk.

Here: counting, which sums are told in a report, which are acknowledged, and what is left to say when the process ends.
Not here: reading tokens off answers (`tokens`), sending (`control`), the disk (`usage_file`). The hub tells of each
request with a key when it ends; those that ended alike are counted together, before anything here is asked for.

A sum of one process only grows and is told whole, so a repeated, late or lost report changes nothing: whoever keeps it
takes the larger one. The day is that of the gateway's own clock when the request ended, and never goes back. That clock
is asked for each request by itself only near the end of a day, and else once a second.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from moorage.domain.usage import day_of, ends_at
from moorage.gateway.outcomes import SERVER_ERRORS
from moorage.gateway.records import alike, picked
from moorage.gateway.tokens import Tokens, sums_of
from moorage.wire.routing import Usage

if TYPE_CHECKING:
    from moorage.decide.serving.routes import EndpointState
    from moorage.gateway.exchange import Exchange
    from moorage.gateway.keys import Keys

EVERY_S: Final = 5.0
"""Between two reports that tell usage: each is a write of the control plane's."""

ROWS_MAX: Final = 500
"""In one report; what is more follows. Those that were told wait behind the others."""

_SENT_MAX: Final = 32
_FRESH_MAX: Final = 128
"""Requests that ended and are counted later, together."""
_NEAR_S: Final = 60.0
"""So long before the end of a day each request is counted by itself, on the day that it is then: more than anything may
keep this process from looking at the day, which it does once a second."""
_ALIKE: Final = 5
"""So many things come first of what is noted of a request, in which it may be like others."""


class Sums:
    """Of one key, endpoint and day, in one process."""

    __slots__ = (
        "client_gone",
        "completion_tokens",
        "counted_tokens",
        "day",
        "due",
        "endpoint",
        "failed",
        "gateway",
        "incarnation",
        "key",
        "namespace",
        "prompt_tokens",
        "refused",
        "requests",
        "told",
    )

    def __init__(self, key: str, namespace: str, endpoint: str, day: str) -> None:
        self.key = key
        self.namespace = namespace
        self.endpoint = endpoint
        self.day = day
        self.gateway: str | None = None
        self.incarnation: str | None = None
        """of the process that counted it, where that is not this one"""
        self.requests = 0
        self.refused = 0
        self.failed = 0
        self.client_gone = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.counted_tokens = 0
        self.told = 0
        """requests that are acknowledged; they grow with whatever else does"""
        self.due = False
        """whether there is something to tell"""

    def to_wire(self) -> Usage:
        """As a report tells it."""
        return Usage(
            key=self.key,
            namespace=self.namespace,
            endpoint=self.endpoint,
            day=self.day,
            requests=self.requests,
            refused=self.refused,
            failed=self.failed,
            client_gone=self.client_gone,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            counted_tokens=self.counted_tokens,
            gateway=self.gateway,
            incarnation=self.incarnation,
        )


class UsageCounts:
    """Of one gateway process.

    Args:
        clock: seconds since the epoch, for the day.
        time: seconds of a clock that never steps.
        rows_max: of one report.
    """

    __slots__ = (
        "_clock",
        "_day",
        "_day_ends",
        "_due",
        "_fresh",
        "_next_at",
        "_rows_max",
        "_sent",
        "_time",
        "_today",
        "_together",
    )

    def __init__(self, clock: Callable[[], float], time: Callable[[], float], rows_max: int = ROWS_MAX) -> None:
        self._clock = clock
        self._time = time
        self._rows_max = rows_max
        now = clock()
        self._day = day_of(now)
        self._day_ends = ends_at(now)
        self._together = 1
        """so many requests that ended are counted together; near the end of a day each by itself"""
        self._today: dict[tuple[str, str, str], Sums] = {}
        self._due: dict[Sums, None] = {}
        """what is not acknowledged as it is, the longest waiting first"""
        self._sent: dict[int, list[tuple[Sums, int]]] = {}
        """by sequence of a report that told usage: what it told"""
        self._next_at = 0.0
        self._fresh: list[tuple[Any, ...]] = []
        """what is noted of requests that ended and are not counted yet"""
        self.look_at_day()

    def ended(self, client: "Exchange", endpoint: "EndpointState", outcome: str) -> None:
        """A request ended that a key had let in; what its answer says of tokens is the client's by now."""
        fresh = self._fresh
        fresh.append((client.tenant, client.binding, endpoint, client.status, outcome, client.tokens))
        if len(fresh) >= self._together:
            self.settle()

    def refused(self, client: "Exchange", keys: "Keys", outcome: str) -> None:
        """A request ended before it was known which deployment answers it; it counts where it shows a key.

        What it named is told where an endpoint goes by it that the key opens: else a client could have any number of
        sums.
        """
        asks = client.head.asks
        rule = keys.of(asks.credential) if asks is not None and asks.credential else None
        if rule is None:
            return
        binding = client.binding
        name = "" if binding is None or binding.spec.namespace != rule.namespace else binding.spec.name
        if rule.endpoints and name not in rule.endpoints:
            name = ""
        self.count((rule.uid, rule.namespace, name), client.status, outcome, (None,))

    def settle(self) -> None:
        """Count what ended since the last time."""
        fresh = self._fresh
        if not fresh:
            return
        self._fresh = []
        columns = list(zip(*fresh, strict=True))
        for places in alike(columns[:_ALIKE]) or [list(range(len(fresh)))]:
            tenant, binding, endpoint, status, outcome, _ = fresh[places[0]]
            route = endpoint.route
            name = route.name if binding is None else binding.spec.name
            told = picked(columns[_ALIKE], places)
            self.count((tenant, route.namespace, name), status, outcome, told)

    def count(self, who: tuple[str, str, str], status: int, outcome: str, told: Sequence[Tokens | None]) -> None:
        """Requests of that key (its uid), in that namespace, that named that endpoint, ended alike.

        Args:
            told: what the answer of each said.
        """
        if self._together == 1:
            self._look_at_clock()
        sums = self._today.get(who)
        if sums is None:
            sums = self._today[who] = Sums(who[0], who[1], who[2], self._day)
        number = len(told)
        sums.requests += number
        if outcome == "ok":
            if status >= SERVER_ERRORS:
                sums.failed += number
        elif outcome == "refused":
            sums.refused += number
        elif outcome == "client_gone":
            sums.client_gone += number
        else:
            sums.failed += number
        prompt, completion, counted = sums_of(told)
        sums.prompt_tokens += prompt
        sums.completion_tokens += completion
        sums.counted_tokens += counted
        if not sums.due:
            sums.due = True
            self._due[sums] = None

    def look_at_day(self) -> None:
        """Called once a second: from a new day on, other sums grow."""
        self.settle()
        self._look_at_clock()

    def _look_at_clock(self) -> None:
        """What is counted from here on belongs to the day that it is now."""
        now = self._clock()
        if now >= self._day_ends:
            self._day, self._day_ends = day_of(now), ends_at(now)
            self._today = {}
        self._together = 1 if self._day_ends - now <= _NEAR_S else _FRESH_MAX

    # --- reports -------------------------------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether a report should tell usage now."""
        self.settle()
        return bool(self._due) and self._time() >= self._next_at

    def tell(self, sequence: int, *, leaving: bool = False) -> tuple[Usage, ...]:
        """What the report of that sequence says.

        Args:
            leaving: it is the last one, which tells all.
        """
        if not self.due() and not leaving:
            return ()
        telling = (
            list(self._due) if leaving else [sums for sums, _ in zip(self._due, range(self._rows_max), strict=False)]
        )
        self._sent[sequence] = [(sums, sums.requests) for sums in telling]
        while len(self._sent) > _SENT_MAX:
            del self._sent[next(iter(self._sent))]
        for sums in telling:
            del self._due[sums]
            self._due[sums] = None  # behind those that were not told
        self._next_at = self._time() + EVERY_S if len(telling) < self._rows_max else 0.0
        return tuple(sums.to_wire() for sums in telling)

    def not_taken(self) -> None:
        """The report was not answered: the next one says it again."""
        self._next_at = 0.0

    def acknowledged(self, sequence: int | None) -> list[Sums]:
        """What the report of that sequence told is on disk; what there is nothing more to say of."""
        self.settle()
        done: list[Sums] = []
        for sums, requests in self._sent.pop(sequence, ()) if sequence is not None else ():
            sums.told = max(sums.told, requests)
            if sums.due and sums.told >= sums.requests:
                sums.due = False
                del self._due[sums]
                done.append(sums)
        return done

    # --- over the end of a process -------------------------------------------------------------------------------

    def left(self, gateway: str, incarnation: str) -> list[Usage]:
        """What this process counted and is not acknowledged, said in its name."""
        self.settle()
        own = [sums for sums in self._due if sums.incarnation is None]
        return [s.to_wire().model_copy(update={"gateway": gateway, "incarnation": incarnation}) for s in own]

    def take_over(self, left: Iterable[Usage]) -> list[Sums]:
        """What another process left is told by this one."""
        taken = []
        for usage in left:
            sums = Sums(usage.key, usage.namespace, usage.endpoint, usage.day)
            sums.gateway, sums.incarnation = usage.gateway, usage.incarnation
            sums.requests, sums.refused, sums.failed = usage.requests, usage.refused, usage.failed
            sums.client_gone, sums.counted_tokens = usage.client_gone, usage.counted_tokens
            sums.prompt_tokens, sums.completion_tokens = usage.prompt_tokens, usage.completion_tokens
            sums.due = True
            self._due[sums] = None
            taken.append(sums)
        return taken
