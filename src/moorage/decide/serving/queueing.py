"""Who of those that wait at one endpoint goes next: a queue that is fair between tenants.

Here: the order, shares of the queue's length, deadlines. Not here: whether a place is free (`routing`, `among`), what
a refusal says (`refusals`). Kept by `routes.EndpointState`; changed by `routing` and `among` only.

The tenant with the fewest requests in flight goes first, among equals the one that went longest ago; within a tenant,
who came first. With one tenant that is plain first come, first served. Requests that name a revision wait in lines of
their own, first come, first served. Every operation costs the number of tenants (or of revisions) that wait at this
endpoint, never the number of requests, save `late`, which costs those that it returns.
"""

from collections import OrderedDict
from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Final

Token = Hashable

_STALE_MAX: Final = 64


class Waiter:
    """One request that waits."""

    __slots__ = ("affinity", "bound", "deadline", "number", "revision", "tenant", "token")

    def __init__(
        self,
        token: Token,
        deadline: float,
        revision: str | None = None,
        *,
        tenant: str = "",
        affinity: bytes | None = None,
        bound: str = "",
    ) -> None:
        self.token = token
        self.deadline = deadline
        self.revision = revision
        self.tenant = tenant
        self.affinity = affinity
        self.bound = bound
        """the name by which it came, when that is an endpoint that people made"""
        self.number = 0
        """rises in the order of coming"""


_Line = OrderedDict[Token, Waiter]


class Queue:
    """All that wait at one endpoint, and how many of each tenant run there."""

    __slots__ = ("_came", "_deadlines", "_first", "_keyed", "_lines", "_running", "_went", "_words", "named", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Token, Waiter] = {}
        self.named: dict[Token, str] = {}
        """of those that wait, the revision that they named"""
        self._lines: dict[str, _Line] = {}
        self._words: dict[str, _Line] = {}
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._came = 0
        self._first = 0
        self._went: dict[str, int] = {}
        """when each tenant went last, while anything waits"""
        self._running: dict[str, int] = {}
        self._keyed = 0

    # --- what runs -----------------------------------------------------------------------------------------------

    def began(self, tenant: str) -> None:
        """A request of a tenant that has a name is in flight from now on."""
        self._running[tenant] = self._running.get(tenant, 0) + 1
        self._keyed += 1

    def ended(self, tenant: str) -> None:
        """It is not any more."""
        self._keyed -= 1
        left = self._running[tenant] - 1
        if left:
            self._running[tenant] = left
        else:
            del self._running[tenant]

    def running(self, tenant: str, in_flight: int) -> int:
        """Requests in flight of a tenant.

        Args:
            in_flight: of all.
        """
        return self._running.get(tenant, 0) if tenant else in_flight - self._keyed

    # --- coming and going ----------------------------------------------------------------------------------------

    def add(self, waiter: Waiter) -> None:
        """It waits from now on, behind the others of its tenant."""
        self._came += 1
        waiter.number = self._came
        self._line_of(waiter)[waiter.token] = waiter
        self._note(waiter)

    def add_first(self, waiter: Waiter) -> None:
        """It waits again, before the others of its tenant."""
        self._first -= 1
        waiter.number = self._first
        line = self._line_of(waiter)
        line[waiter.token] = waiter
        line.move_to_end(waiter.token, last=False)
        self._note(waiter)

    def remove(self, token: Token) -> Waiter | None:
        """It waits no more; None when it did not."""
        waiter = self.waiting.pop(token, None)
        if waiter is None:
            return None
        if waiter.revision is None:
            lines, name = self._lines, waiter.tenant
        else:
            del self.named[token]
            lines, name = self._words, waiter.revision
        line = lines[name]
        del line[token]
        if not line:
            del lines[name]
        if not self.waiting:
            self._went.clear()
            self._deadlines.clear()
        return waiter

    def went(self, waiter: Waiter) -> None:
        """It got its place: remove it, and remember its tenant's turn."""
        self._came += 1
        self._went[waiter.tenant] = self._came
        self.remove(waiter.token)

    def clear(self) -> list[Waiter]:
        """Everybody, who all wait no more."""
        everybody = list(self.waiting.values())
        self.waiting.clear()
        self.named.clear()
        self._lines.clear()
        self._words.clear()
        self._went.clear()
        self._deadlines.clear()
        return everybody

    # --- who -----------------------------------------------------------------------------------------------------

    def head(self, in_flight: int) -> Waiter | None:
        """Who goes next of those that name no revision.

        Args:
            in_flight: requests in flight at the endpoint.
        """
        best: _Line | None = None
        if len(self._lines) == 1:
            (best,) = self._lines.values()
        else:
            least = turn = 0
            for tenant, line in self._lines.items():
                running = self.running(tenant, in_flight)
                last = self._went.get(tenant, 0)
                if best is None or running < least or (running == least and last < turn):
                    best, least, turn = line, running, last
        return next(iter(best.values())) if best is not None else None

    def words(self) -> list[str]:
        """The revisions that are named, in the order of their first ones' coming."""
        if len(self._words) < 2:
            return list(self._words)
        firsts = sorted((next(iter(line.values())).number, word) for word, line in self._words.items())
        return [word for _, word in firsts]

    def head_of(self, word: str) -> Waiter | None:
        """Who goes next of those that name this revision."""
        line = self._words.get(word)
        return next(iter(line.values())) if line else None

    def place_for(self, tenant: str) -> Waiter | None:
        """Who gives its place in a full queue to one more of this tenant: the newest of the tenant that holds most.

        Only to a tenant that holds, after it, no more than the other one still does. So a tenant keeps at least the
        queue's length divided by the tenants in it, and two that hold as many take nothing from each other.
        """
        greediest: _Line | None = None
        for line in self._lines.values():
            if greediest is None or len(line) > len(greediest):
                greediest = line
        own = self._lines.get(tenant)
        held = len(own) if own is not None else 0
        if greediest is None or greediest is own or held + 1 >= len(greediest):
            return None
        return next(reversed(greediest.values()))

    def late(self, now: float) -> list[Waiter]:
        """Remove and return those whose deadline passed."""
        out = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            waiter = heappop(deadlines)[2]
            if self.waiting.get(waiter.token) is waiter:
                self.remove(waiter.token)
                out.append(waiter)
        return out

    # --- inside --------------------------------------------------------------------------------------------------

    def _line_of(self, waiter: Waiter) -> _Line:
        self.waiting[waiter.token] = waiter
        if waiter.revision is None:
            lines, name = self._lines, waiter.tenant
        else:
            self.named[waiter.token] = waiter.revision
            lines, name = self._words, waiter.revision
        line = lines.get(name)
        if line is None:
            line = lines[name] = OrderedDict()
        return line

    def _note(self, waiter: Waiter) -> None:
        heappush(self._deadlines, (waiter.deadline, waiter.number, waiter))
        if len(self._deadlines) > _STALE_MAX + 2 * len(self.waiting):
            # Those that left before their deadline: dropped once they are more than those that wait.
            self._deadlines = sorted((w.deadline, w.number, w) for w in self.waiting.values())
