"""What was used within the last minute. Called by `spending` for each limit of requests or tokens.

A window is exact to the second and never forgets early: an admission is counted for 60 to 61 seconds.
"""

from typing import Final

_KEPT_S: Final = 61
"""Whole seconds that a window remembers, the present one included."""
_SLOTS: Final = 64
_MASK: Final = 63


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

    def give_back(self, amount: int, second: int) -> int:
        """Count less in that second; nothing where it is forgotten already. How much less."""
        if second < self.oldest:
            return 0
        amounts, place = self.amounts, second & _MASK
        amount = min(amount, amounts[place])
        amounts[place] -= amount
        self.total -= amount
        return amount

    def empties_in_s(self, now: float) -> float:
        """Seconds until nothing is counted any more, if nothing is added."""
        if not self.used(now):
            return 0.0
        while not self.amounts[self.newest & _MASK]:
            self.newest -= 1  # what was added in that second is given back
        return max(0.0, self.newest + _KEPT_S - now)

    def falls_to_in_s(self, most: int, now: float) -> float:
        """Seconds until no more than `most` are counted, if nothing is added."""
        total = self.used(now)
        second = self.oldest
        while total > most and second <= int(now):
            total -= self.amounts[second & _MASK]
            second += 1
        return max(0.0, second - 1 + _KEPT_S - now) if second > self.oldest else 0.0
