"""What this gateway uses of its shares of limits: windows, counts, and what one request holds of them.

Here: counting within a minute, and the charge and settlement of one request. Not here: which limits there are and who
waits (`limits`, which calls this), answers (`limit_answers`), the shares themselves (the control plane's ledger).

A window is exact to the second and never forgets early: an admission is counted for 60 to 61 seconds.
"""

from typing import Final

from moorage.gateway.tokens import Tokens

REQUESTS: Final = "requests_per_minute"
TOKENS: Final = "tokens_per_minute"
IN_FLIGHT: Final = "in_flight"

_KEPT_S: Final = 61
"""Whole seconds that a window remembers, the present one included."""
_SLOTS: Final = 64
_MASK: Final = 63

_MEAN_FIRST: Final = 256
_MEAN_MAX: Final = 8192
_PROMPT_BYTES_PER_TOKEN: Final = 4


class Window:
    """Amounts of the last 60 seconds, by whole seconds. Times are monotonic seconds."""

    __slots__ = ("amounts", "newest", "oldest", "total")

    def __init__(self) -> None:
        self.amounts: list[int] = [0] * _SLOTS
        self.oldest = 0
        """the second before which nothing is kept any more"""
        self.newest = 0
        self.total = 0

    def used(self, now: float) -> int:
        """How much was added within the last 60 seconds, up to one second more."""
        oldest = int(now) - (_KEPT_S - 1)
        if oldest > self.oldest:
            self.forget(oldest)
        return self.total

    def forget(self, oldest: int) -> None:
        """What was added before that second counts no more."""
        amounts = self.amounts
        if oldest - self.oldest >= _SLOTS or not self.total:
            self.amounts = [0] * _SLOTS
            self.total = 0
        else:
            for second in range(self.oldest, oldest):
                self.total -= amounts[second & _MASK]
                amounts[second & _MASK] = 0
        self.oldest = oldest

    def add(self, amount: int, now: float) -> int:
        """Count it now; the second under which it is kept, for `give_back`."""
        self.used(now)
        second = int(now)
        self.amounts[second & _MASK] += amount
        self.total += amount
        self.newest = second
        return second

    def give_back(self, amount: int, second: int) -> None:
        """Count less in that second; nothing where it is forgotten already."""
        if second >= self.oldest:
            amounts, place = self.amounts, second & _MASK
            amount = min(amount, amounts[place])
            amounts[place] -= amount
            self.total -= amount

    def empties_in_s(self, now: float) -> float:
        """Seconds until nothing is counted any more, if nothing is added."""
        return max(0.0, self.newest + _KEPT_S - now) if self.used(now) else 0.0

    def falls_to_in_s(self, most: int, now: float) -> float:
        """Seconds until no more than `most` are counted, if nothing is added."""
        total = self.used(now)
        second = self.oldest
        while total > most and second <= int(now):
            total -= self.amounts[second & _MASK]
            second += 1
        return max(0.0, second - 1 + _KEPT_S - now) if second > self.oldest else 0.0


class Limit:
    """One limit as this gateway keeps to it.

    Args:
        most: of all gateways together, as the table or the last answer said.
    """

    __slots__ = (
        "dry_until",
        "known_until",
        "most",
        "refused",
        "reported",
        "resource",
        "running",
        "share",
        "subject",
        "told",
        "used_at",
        "vain",
        "waiting",
        "weighs_tokens",
        "window",
    )

    def __init__(self, subject: str, resource: str, most: int, now: float) -> None:
        self.subject = subject
        self.resource = resource
        self.weighs_tokens = resource == TOKENS
        """else each request is one"""
        self.told = b""
        """header lines up to the number of what is left"""
        self.set_most(most)
        self.share = 0
        self.known_until = float("-inf")
        """until then it keeps to `share`, and from then on admits nothing"""
        self.window: Window | None = None if resource == IN_FLIGHT else Window()
        self.running = 0
        """permits that are not settled"""
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
        """The limit of all gateways together."""
        self.most = most
        word = b"tokens" if self.weighs_tokens else b"requests"
        self.told = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: " % (word, most, word)

    def used(self, now: float) -> int:
        """Within the last minute; of what is in flight: now."""
        return self.running if self.window is None else self.window.used(now)

    @property
    def left(self) -> int:
        """Of the share, as it was when `used` or `take` was last asked."""
        window = self.window
        left = self.share - (self.running if window is None else window.total)
        return left if left > 0 else 0

    def lacks(self, amount: int, now: float) -> bool:
        """Whether that much more is not to be had now."""
        return now >= self.known_until or self.used(now) + amount > self.share

    def more_may_come(self, amount: int, now: float) -> bool:
        """Whether waiting for the ledger's answer can help: there is no share yet, or others may give of theirs."""
        return now >= self.dry_until and (now >= self.known_until or self.share < self.most >= amount)


class Account:
    """The limits of requests that agree in namespace, key and endpoint; all of them must admit a request."""

    __slots__ = ("in_flight", "limits", "mean", "requests", "tokens", "windows")

    def __init__(self, limits: tuple[Limit, ...]) -> None:
        self.limits = limits
        self.requests = tuple(limit for limit in limits if limit.resource == REQUESTS)
        self.tokens = tuple(limit for limit in limits if limit.resource == TOKENS)
        self.in_flight = tuple(limit for limit in limits if limit.resource == IN_FLIGHT)
        self.windows = tuple((limit.window, limit.weighs_tokens) for limit in limits if limit.window is not None)
        """and whether it counts tokens"""
        self.mean = float(_MEAN_FIRST)
        """tokens of its answers, a moving mean"""

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
        second = int(now)
        oldest = second - (_KEPT_S - 1)
        limits = self.limits
        for limit in limits:
            window = limit.window
            if window is None:
                used = limit.running
            else:
                if oldest > window.oldest:
                    window.forget(oldest)
                used = window.total
            if used + (tokens if limit.weighs_tokens else 1) > limit.share or now >= limit.known_until:
                return False
        for limit in limits:
            limit.running += 1
        place = second & _MASK
        for window, weighs_tokens in self.windows:
            amount = tokens if weighs_tokens else 1
            window.amounts[place] += amount
            window.total += amount
            window.newest = second
        return True

    def lacking(self, tokens: int, now: float) -> list[Limit]:
        """The limits that do not admit such a request now."""
        return [limit for limit in self.limits if limit.lacks(tokens if limit.resource == TOKENS else 1, now)]


def prompt_tokens(body_bytes: int) -> int:
    """Tokens that a request's body is taken to have."""
    return body_bytes // _PROMPT_BYTES_PER_TOKEN or 1


class Permit:
    """What a request holds of its limits, from before it is sent until it is over.

    Args:
        tokens: reserved.
        prompt: of them, those of its body.
        since: when it came, monotonic seconds.
    """

    __slots__ = ("account", "prompt", "second", "since", "tokens", "waiting")

    def __init__(self, account: Account, tokens: int, prompt: int, since: float) -> None:
        self.account = account
        self.tokens = tokens
        self.prompt = prompt
        self.since = since
        self.second = int(since)
        """under which it is charged"""
        self.waiting = False
        """it holds nothing yet"""

    def take(self, now: float) -> bool:
        """Charge it; False when that cannot be now."""
        self.second = int(now)
        return self.account.take(self.tokens, now)

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
        for limit in account.limits:
            limit.running -= 1
        if not sent:
            for limit in account.requests:
                assert limit.window is not None
                limit.window.give_back(1, self.second)
        if account.tokens:
            spent = self.tokens if sent and not failed else 0
            if usage is not None and sent:
                spent = usage[0] + usage[1]
                account.learn(usage[1])
            self._settle_tokens(account, now, spent)

    def _settle_tokens(self, account: Account, now: float, spent: int) -> None:
        unused = self.tokens - spent
        for limit in account.tokens:
            window = limit.window
            assert window is not None
            if unused > 0:
                window.give_back(unused, self.second)
            elif unused < 0:
                window.add(-unused, now)
