"""What limits admit, whatever is remembered within a second, is what a list of all that was ever charged says."""

import random
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

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
        listed = self.listed[n]
        listed.share, listed.most = min(listed.share, listed.share * most // listed.most), most

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


STEPS_S: Final = (
    (0.0, 0.01, 0.3),
    (0.2, 0.5, 1.0),
    (0.0, 0.4, 0.9, 20.0, 60.0, 61.0),
    (0.0, 0.6, 59.4, 63.0, 64.5, 1e5),
)
ACTS: Final = {"take": 8, "settle": 5, "step": 4, "read": 1, "share": 1, "known": 1, "most": 1}


class History:
    """What happens to a pair, drawn at random: near what is left, and near the ends of seconds and of shares."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.pair = Pair(self.draw.uniform(0.0, 1e5))
        self.most = self.draw.choice((3, 20, 200))
        self.steps_s = self.draw.choice(STEPS_S)
        for n in range(len(KINDS)):
            self.pair.set_share(n, self.most)
            self.pair.set_known(n, inf)

    def amount(self) -> int:
        """Of tokens: often just what there is, or one more."""
        left = self.pair.listed[self.draw.choice((2, 3))].left(self.pair.now)
        return max(0, self.draw.choice((self.draw.randint(0, 5), self.draw.randint(0, self.most), left, left + 1)))

    def act(self) -> None:
        draw, pair = self.draw, self.pair
        which = draw.randrange(len(KINDS))
        act = draw.choices(list(ACTS), list(ACTS.values()))[0]
        if act == "take":
            pair.take(draw.randrange(len(ACCOUNTS)), self.amount())
        elif act == "settle":
            usage = draw.choice((None, (self.amount(), self.amount()), (draw.randint(0, 3), 0)))
            pair.settle(draw.randrange(1000), sent=draw.random() < 0.7, failed=draw.random() < 0.3, usage=usage)
        elif act == "step":
            pair.now += draw.choice(self.steps_s)
        elif act == "read":
            pair.read(which, self.amount())
        elif act == "share":
            pair.set_share(which, draw.choice((0, self.most, self.most, draw.randint(0, self.most))))
        elif act == "known":
            pair.set_known(which, draw.choice((-inf, 0.0, draw.random(), draw.random(), 1.5, 90.0, inf, inf)))
        else:
            pair.set_most(which, draw.randint(1, 500))


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32))
def test_limits_admit_tell_and_report_what_a_list_of_all_charges_says(seed: int) -> None:
    history = History(seed)
    for _ in range(300):
        history.act()
    pair = history.pair
    for n in range(len(KINDS)):
        pair.read(n, 1)
    for account in pair.accounts:
        assert account.running == sum(permit.account is account for permit, _ in pair.permits)
