"""What limits admit, whatever is remembered within a second, is what a list of all that was ever charged says."""

from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.gateway.limit_answers import admitted, lines
from moorage.gateway.spending import IN_FLIGHT, REQUESTS, TOKENS, Account, Limit, Permit
from tests.examples import examples

KINDS: Final = (REQUESTS, REQUESTS, TOKENS, TOKENS, IN_FLIGHT, IN_FLIGHT)
ACCOUNTS: Final = ((0, 2, 4), (0, 1, 2, 3, 4, 5), (1, 3, 5), (3,), (1,), (4, 5))
"""Which of the limits each has: each limit is shared by several."""


@dataclass
class Charge:
    second: int
    amount: int


@dataclass
class ListedLimit:
    """A limit by the words of the decision: a share, for how long it is known, and every charge there was."""

    resource: str
    most: int
    share: int = 0
    known_until: float = -inf
    charges: list[Charge] = field(default_factory=list)

    def counted(self, now: float) -> list[Charge]:
        return [c for c in self.charges if c.amount and (self.resource == IN_FLIGHT or c.second >= int(now) - 60)]

    def used(self, now: float) -> int:
        return sum(c.amount for c in self.counted(now))

    def left(self, now: float) -> int:
        return max(0, self.share - self.used(now))

    def lacks(self, amount: int, now: float) -> bool:
        return now >= self.known_until or self.used(now) + amount > self.share

    def charge(self, amount: int, now: float) -> Charge:
        self.charges.append(Charge(int(now), amount))
        return self.charges[-1]

    def falls_to_in_s(self, most: int, now: float) -> float:
        used, wait_s = self.used(now), 0.0
        for charge in sorted(self.counted(now), key=lambda c: c.second):
            if used > most:
                used, wait_s = used - charge.amount, charge.second + 61 - now
        return wait_s


class Pair:
    """The same limits twice, as they are and as lists; what happens to one happens to the other."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.limits = [Limit(f"key/{n}", kind, 100, now) for n, kind in enumerate(KINDS)]
        self.listed = [ListedLimit(kind, 100) for kind in KINDS]
        self.accounts = [Account(tuple(self.limits[n] for n in which)) for which in ACCOUNTS]
        self.permits: list[tuple[Permit, list[tuple[ListedLimit, Charge]]]] = []

    def set_share(self, n: int, share: int) -> None:
        self.limits[n].share = self.listed[n].share = share

    def set_known(self, n: int, for_s: float) -> None:
        self.limits[n].known_until = self.listed[n].known_until = self.now + for_s

    def set_most(self, n: int, most: int) -> None:
        self.limits[n].set_most(most)
        self.listed[n].most = most

    def take(self, a: int, tokens: int) -> None:
        listed = [self.listed[n] for n in ACCOUNTS[a]]
        amounts = [tokens if limit.resource == TOKENS else 1 for limit in listed]
        expected = not any(limit.lacks(amount, self.now) for limit, amount in zip(listed, amounts, strict=True))
        permit = Permit(self.accounts[a], tokens, tokens // 2, self.now)
        assert permit.take(self.now) == expected
        if expected:
            charges = [(of, of.charge(amount, self.now)) for of, amount in zip(listed, amounts, strict=True)]
            self.permits.append((permit, charges))
            assert admitted(self.accounts[a]) == self.lines(a, b"1m1s")
        else:
            lacking = [
                n for n, amount in zip(ACCOUNTS[a], amounts, strict=True) if self.listed[n].lacks(amount, self.now)
            ]
            assert self.accounts[a].lacking(tokens, self.now) == [self.limits[n] for n in lacking]
            assert lines(self.accounts[a], self.now) == self.lines(a, None)

    def lines(self, a: int, reset: bytes | None) -> bytes:
        """Header lines of an account; without `reset` as of one that is refused."""
        told = b""
        for resource, word in ((REQUESTS, b"requests"), (TOKENS, b"tokens")):
            mine = [self.listed[n] for n in ACCOUNTS[a] if KINDS[n] == resource]
            if not mine:
                continue
            limit = min(mine, key=lambda one: one.left(self.now))
            known = reset is not None or self.now < limit.known_until
            told += b"x-ratelimit-limit-%b: %d\r\n" % (word, limit.most)
            told += b"x-ratelimit-remaining-%b: %d\r\n" % (word, limit.left(self.now) if known else 0)
            told += b"x-ratelimit-reset-%b: %b\r\n" % (word, reset or spelled(limit.falls_to_in_s(0, self.now)))
        return told

    def settle(self, which: int, sent: bool, failed: bool, usage: tuple[int, int] | None) -> None:
        if not self.permits:
            return
        permit, charges = self.permits.pop(which % len(self.permits))
        permit.settle(self.now, sent=sent, failed=failed, usage=usage)
        spent = 0 if failed or not sent else permit.tokens
        if usage is not None and sent:
            spent = sum(usage)
        for limit, charge in charges:
            if limit.resource == IN_FLIGHT or (limit.resource == REQUESTS and not sent):
                charge.amount = 0
            elif limit.resource == TOKENS:
                if spent > charge.amount:
                    limit.charge(spent - charge.amount, self.now)
                else:
                    charge.amount = spent

    def read(self, n: int, amount: int) -> None:
        """All that is told of a limit."""
        limit, listed = self.limits[n], self.listed[n]
        assert limit.lacks(amount, self.now) == listed.lacks(amount, self.now)
        assert limit.used(self.now) == listed.used(self.now)
        assert limit.left == listed.left(self.now)
        if KINDS[n] != IN_FLIGHT:
            assert limit.empties_in_s(self.now) == listed.falls_to_in_s(0, self.now)
            assert limit.falls_to_in_s(amount, self.now) == listed.falls_to_in_s(amount, self.now)


def spelled(seconds: float) -> bytes:
    whole = ceil(seconds)
    return b"%dm%ds" % (whole // 60, whole % 60) if whole >= 60 else b"%ds" % whole


WHICH: Final = st.integers(0, len(KINDS) - 1)
AMOUNT: Final = st.one_of(st.integers(0, 12), st.integers(0, 400))
TAKE: Final = st.tuples(st.just("take"), st.integers(0, len(ACCOUNTS) - 1), AMOUNT)
USAGE: Final = st.none() | st.tuples(AMOUNT, AMOUNT)
SETTLE: Final = st.tuples(st.just("settle"), st.integers(0, 100), st.booleans(), st.booleans(), USAGE)
STEP_S: Final = st.sampled_from((0.0, 0.01, 0.3, 0.5, 0.99, 1.0, 2.5, 30.0, 59.4, 60.0, 61.0, 63.0, 64.5, 200.0, 1e5))
STEP: Final = st.tuples(st.just("step"), STEP_S)
SHARE: Final = st.tuples(st.just("set_share"), WHICH, st.sampled_from((0, 1, 2, 3, 7, 30, 500)))
KNOWN: Final = st.tuples(st.just("set_known"), WHICH, st.sampled_from((-inf, -1.0, 0.0, 0.2, 0.7, 1.5, 90.0, inf)))
MOST: Final = st.tuples(st.just("set_most"), WHICH, st.integers(1, 500))
READ: Final = st.tuples(st.just("read"), WHICH, AMOUNT)
ACTS: Final = st.one_of(TAKE, TAKE, TAKE, SETTLE, SETTLE, STEP, STEP, SHARE, KNOWN, READ, MOST)


@settings(max_examples=examples(600))
@given(
    start=st.floats(0.0, 1e6),
    shares=st.lists(st.integers(0, 60), min_size=6, max_size=6),
    acts=st.lists(ACTS, max_size=80),
)
def test_limits_admit_tell_and_report_what_a_list_of_all_charges_says(
    start: float, shares: list[int], acts: list[tuple[Any, ...]]
) -> None:
    pair = Pair(start)
    for n, share in enumerate(shares):
        pair.set_share(n, share)
        pair.set_known(n, 300.0)
    for act, *how in acts:
        if act == "step":
            pair.now += how[0]
        else:
            getattr(pair, act)(*how)
    for n in range(len(KINDS)):
        pair.read(n, 1)
    for account, which in zip(pair.accounts, ACCOUNTS, strict=True):
        assert account.running == sum(permit.account is account for permit, _ in pair.permits), which
