"""Changes of state for those who follow them: each follower has a bounded queue, and is told what it missed."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace

from moorage.runners.library.views import StateChange


class Feed:
    """Publishes to any number of followers; publishing never waits.

    Args:
        limit: changes kept for one follower.
    """

    def __init__(self, limit: int) -> None:
        self._limit = max(1, limit)
        self._followers: set[_Follower] = set()
        self._closed = False

    def publish(self, change: StateChange) -> None:
        """Give it to everybody who follows."""
        for follower in self._followers:
            follower.give(change)

    def close(self) -> None:
        """End every follower's iteration once it has read what there is."""
        self._closed = True
        for follower in self._followers:
            follower.news.set()

    def follow(self) -> AsyncIterator[StateChange]:
        """Changes from this call on, until `close`."""
        follower = _Follower(self._limit)
        self._followers.add(follower)
        return self._read(follower)

    async def _read(self, follower: "_Follower") -> AsyncIterator[StateChange]:
        try:
            while True:
                while follower.waiting:
                    yield follower.take()
                if self._closed:
                    return
                follower.news.clear()
                await follower.news.wait()
        finally:
            self._followers.discard(follower)


class _Follower:
    def __init__(self, limit: int) -> None:
        self.waiting: deque[StateChange] = deque()
        self.news = asyncio.Event()
        self._limit = limit
        self._missed = 0

    def give(self, change: StateChange) -> None:
        if len(self.waiting) >= self._limit:
            self._missed += 1 + self.waiting.popleft().missed
        self.waiting.append(change)
        self.news.set()

    def take(self) -> StateChange:
        change, missed = self.waiting.popleft(), self._missed
        self._missed = 0
        return replace(change, missed=missed) if missed else change
