"""What this gateway uses of its shares of limits: counts, and what one request holds of them.

Here: what is left of a share, and the charge and settlement of one request. Not here: the last minute's amounts
(`windows`), which limits there are and who waits (`limits`, which calls this), answers (`limit_answers`), the shares
themselves (the control plane's ledger).

Within one whole second only admissions and what is given back change what a limit still admits. So each limit keeps
that number, `free`, and a request compares it and takes its part; the window, the share and how long the share is known
are looked at once a second, after each change of the share, and where `free` does not do.
"""

from typing import Final

from moorage.gateway.tokens import Tokens
from moorage.gateway.windows import Window

REQUESTS: Final = "requests_per_minute"
TOKENS: Final = "tokens_per_minute"
IN_FLIGHT: Final = "in_flight"

_ASK: Final = -(1 << 60)
"""In place of `free`: it admits nothing until it is looked at."""
_WORDS: Final = {TOKENS: b"tokens"}

_MEAN_FIRST: Final = 256
_MEAN_MAX: Final = 8192
_PROMPT_BYTES_PER_TOKEN: Final = 4


class Limit:
    """One limit as this gateway keeps to it.

    Args:
        most: of all gateways together, as the table or the last answer said.
    """

    __slots__ = (
        "_base",
        "_known_until",
        "_second",
        "_share",
        "_window",
        "dry_until",
        "free",
        "line",
        "most",
        "refused",
        "reported",
        "reset",
        "resource",
        "subject",
        "told",
        "used_at",
        "vain",
        "waiting",
        "weighs_tokens",
    )

    def __init__(self, subject: str, resource: str, most: int, now: float) -> None:
        self.subject = subject
        self.resource = resource
        self.weighs_tokens = resource == TOKENS
        """else each request is one"""
        self.told = self.reset = self.line = b""
        """header lines after a charge: up to the number of what is left, from it on, and all of them for `%` of it"""
        self.most = -1
        self._share = 0
        self.set_most(most)
        self._known_until = float("-inf")
        self._window: Window | None = None if resource == IN_FLIGHT else Window()
        """without what was charged since `free` was set"""
        self.free = _ASK
        """at least so much may be charged in the present second; what is charged is taken off it. Below 0: ask"""
        self._base = _ASK
        """what `free` was: what it is less now is charged, in `_second` or, of what is in flight, since ever"""
        self._second = 0
        self.refused = 0
        """amount refused since the last report that was answered"""
        self.reported = 0
        """of `refused`, what the report on its way says"""
        self.waiting = 0
        self.dry_until = float("-inf")
        """until then more was asked for in vain: nobody waits for it"""
        self.vain = 0
        """waits in vain since its share rose last"""
        self.used_at = now
        """when it was last seen in use, by a report"""

    def set_most(self, most: int) -> None:
        """The limit of all gateways together. A share of a higher one is at once the same part of a lower one."""
        if most == self.most:
            return
        if self._share and most < self.most:
            self.share = self._share * most // self.most
        self.most = most
        word = _WORDS.get(self.resource, b"requests")
        self.told = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: " % (word, most, word)
        self.reset = b"\r\nx-ratelimit-reset-%b: 1m1s\r\n" % word
        self.line = self.told + b"%d" + self.reset

    def take_share(self, share: int, limit: int, in_force: int | None) -> None:
        """Take what the ledger told.

        Args:
            limit: of which that is a share.
            in_force: the table's, which may have been lowered while the answer was on its way; None: not known.
        """
        lowered = limit < self.most
        self.set_most(limit)
        # Of a lowered one no more than its part, until it is known that the others keep to theirs.
        self.share = min(share, self._share if lowered else limit)
        if in_force is not None and in_force < limit:
            self.set_most(in_force)

    @property
    def share(self) -> int:
        """What this gateway may admit of it."""
        return self._share

    @share.setter
    def share(self, share: int) -> None:
        self._share = share
        self._ask()

    @property
    def known_until(self) -> float:
        """Until then it keeps to `share`, and from then on admits nothing; monotonic seconds."""
        return self._known_until

    @known_until.setter
    def known_until(self, known_until: float) -> None:
        self._known_until = known_until
        self._ask()

    def _ask(self) -> None:
        """`free` may be wrong now: whoever wants some has to look."""
        self.free += _ASK - self._base
        self._base = _ASK

    def look(self, now: float) -> None:
        """Set `free` for this whole second, unless the share is known for less: then it is to be asked each time."""
        second = max(int(now), self._second)
        charged = self._base - self.free
        left = self._share
        window = self._window
        if window is not None:
            if charged:
                window.add(charged, self._second)
                charged = 0
            left -= window.used(second)
        self._second = second
        self._base = left if self._known_until >= second + 1 else _ASK
        self.free = self._base - charged

    def used(self, now: float) -> int:
        """Within the last minute; of what is in flight: now."""
        self.look(now)
        return self._base - self.free if self._window is None else self._window.total

    @property
    def left(self) -> int:
        """Of the share, as it was when `used` or `take` was last asked."""
        left = self._share - (self._base - self.free)
        if self._window is not None:
            left -= self._window.total
        return left if left > 0 else 0

    def lacks(self, amount: int, now: float) -> bool:
        """Whether that much more is not to be had now."""
        return self.used(now) + amount > self._share or now >= self._known_until

    def more_may_come(self, amount: int, now: float) -> bool:
        """Whether waiting for the ledger's answer can help: there is no share yet, or others may give of theirs."""
        return now >= self.dry_until and (now >= self._known_until or self._share < self.most >= amount)

    def give_back(self, amount: int, at: float) -> None:
        """Count less of what was charged then; nothing where that is forgotten already. Not of what is in flight."""
        if at < self._second:
            assert self._window is not None
            amount = self._window.give_back(amount, int(at))
            self._base += amount
        self.free += amount

    def add(self, amount: int, now: float) -> None:
        """Count it now, whether it is admitted or not."""
        if now >= self._second + 1:
            self.look(now)
        self.free -= amount

    def empties_in_s(self, now: float) -> float:
        """Seconds until nothing is counted any more, if nothing is added."""
        self.look(now)
        return self._window.empties_in_s(now) if self._window is not None else 0.0

    def falls_to_in_s(self, most: int, now: float) -> float:
        """Seconds until no more than `most` are counted, if nothing is added. Not of what is in flight."""
        assert self._window is not None
        self.look(now)
        return self._window.falls_to_in_s(most, now)


class Account:
    """The limits of requests that agree in namespace, key and endpoint; all of them must admit a request."""

    __slots__ = ("_until", "in_flight", "kinds", "limits", "mean", "ones", "requests", "running", "tokens")

    def __init__(self, limits: tuple[Limit, ...]) -> None:
        self.limits = limits
        self.requests = tuple(limit for limit in limits if limit.resource == REQUESTS)
        self.tokens = tuple(limit for limit in limits if limit.resource == TOKENS)
        self.in_flight = tuple(limit for limit in limits if limit.resource == IN_FLIGHT)
        self.ones = self.requests + self.in_flight
        """of which each request is one"""
        self.kinds = tuple((limits[0], limits[1:]) for limits in (self.requests, self.tokens) if limits)
        """of requests and of tokens, where there are any: one limit, and the others"""
        self.running = 0
        """permits that are not settled"""
        self.mean = float(_MEAN_FIRST)
        """tokens of its answers, a moving mean"""
        self._until = float("-inf")
        """the end of the whole second for which all of its limits were looked at"""

    @property
    def usual(self) -> int:
        """Tokens that an answer is taken to have where its request sets no bound."""
        return int(self.mean)

    def learn(self, completion_tokens: int) -> None:
        """An answer told how many tokens it has."""
        mean = self.mean
        self.mean = mean + ((completion_tokens if completion_tokens < _MEAN_MAX else _MEAN_MAX) - mean) / 8.0

    def take(self, tokens: int, now: float) -> bool:
        """Charge a request to all limits; False, and nothing charged, when one of them does not admit it."""
        if now >= self._until:
            self._look(now)
        for limit in self.ones:
            limit.free = free = limit.free - 1
            if free < 0 and limit.lacks(0, now):
                return self._take_back(limit, tokens)
        for limit in self.tokens:
            limit.free = free = limit.free - tokens
            if free < 0 and limit.lacks(0, now):
                return self._take_back(limit, tokens)
        self.running += 1
        return True

    def _take_back(self, last: Limit, tokens: int) -> bool:
        """That one does not admit it: nothing is charged, to it and to those before it."""
        for limit in self.ones:
            limit.free += 1
            if limit is last:
                return False
        for limit in self.tokens:
            limit.free += tokens
            if limit is last:
                break
        return False

    def _look(self, now: float) -> None:
        for limit in self.limits:
            limit.look(now)
        self._until = int(now) + 1.0

    def lacking(self, tokens: int, now: float) -> list[Limit]:
        """The limits that do not admit such a request now."""
        return [limit for limit in self.limits if limit.lacks(tokens if limit.weighs_tokens else 1, now)]


def prompt_tokens(body_bytes: int) -> int:
    """Tokens that a request's body is taken to have."""
    return body_bytes // _PROMPT_BYTES_PER_TOKEN or 1


class Permit:
    """What a request holds of its limits, from before it is sent until it is over.

    Args:
        tokens: reserved.
        prompt: of them, those of its body.
        since: when it came, and once it is charged: when that was. Monotonic seconds.
    """

    __slots__ = ("account", "prompt", "since", "tokens", "waiting")

    def __init__(self, account: Account, tokens: int, prompt: int, since: float) -> None:
        self.account = account
        self.tokens = tokens
        self.prompt = prompt
        self.since = since
        self.waiting = False
        """it holds nothing yet"""

    def take(self, now: float) -> bool:
        """Charge it; False when that cannot be now."""
        if not self.account.take(self.tokens, now):
            return False
        self.since = now
        return True

    def usage(self, told: Tokens | None) -> tuple[int, int] | None:
        """What its answer cost, of prompt and answer; None where the answer says nothing of it."""
        if told is None or (told.prompt is None and told.completion is None):
            return None
        return self.prompt if told.prompt is None else told.prompt, told.completion or 0

    def settle(self, now: float, *, sent: bool, failed: bool, usage: tuple[int, int] | None) -> None:
        """The request is over.

        A request counts once it was sent. Its tokens are those that its answer told: what they are less than the
        reserve is given back where it was taken, what they are more is taken now. One that failed costs none, and one
        whose answer told nothing keeps its reserve.

        Args:
            sent: to a model server, whole or in part.
            failed: the answer is an error's, or there is none because of the server.
            usage: tokens of prompt and answer.
        """
        account = self.account
        account.running -= 1
        for limit in account.in_flight:
            limit.free += 1
        if not sent:
            for limit in account.requests:
                limit.give_back(1, self.since)
        if not account.tokens:
            return
        if sent and usage is not None:
            prompt, completion = usage
            unused = self.tokens - prompt - completion
            account.learn(completion)
        elif sent and not failed:
            return
        else:
            unused = self.tokens
        for limit in account.tokens:
            if unused >= 0:
                limit.give_back(unused, self.since)
            else:
                limit.add(-unused, now)
