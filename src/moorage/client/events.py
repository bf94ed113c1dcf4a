"""Events: everything that happened, as pages or as it happens."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from moorage.client.session import PAGE, Session, fleet_path

Json = dict[str, Any]
Items = list[Json]


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, oldest first, and the cursor from which to go on."""

    items: Items
    cursor: str | None


class AsyncEvents:
    """`client.events`. All methods take `namespace`; None is every one that the token may see.

    Raises, all of them: `Gone` where the cursor is not known any more: look at the objects themselves and begin anew.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def __call__(
        self, after: str | None = None, *, follow: bool = False, namespace: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """Events after a cursor (None: from the beginning, or with `follow` from now), oldest first.

        Args:
            follow: go on as they happen, across broken connections and restarts of the server.
        """
        if follow:
            async with aclosing(self.follow(after, namespace=namespace)) as found:
                async for item in found:
                    yield item
            return
        for item in (await self.list(after, namespace=namespace)).items:
            yield item

    async def list(self, after: str | None = None, *, namespace: str | None = None) -> EventPage:
        """All events after a cursor (None: from the beginning), page after page."""
        items: Items = []
        while True:
            page = await self._page(after=after, namespace=namespace, limit=PAGE)
            items += page["items"]
            after = page.get("cursor") or page.get("next") or after
            if not page.get("next"):
                return EventPage(items, after)

    async def last(self, count: int, *, namespace: str | None = None) -> EventPage:
        """The newest `count` events, oldest first."""
        page = await self._page(namespace=namespace, limit=max(1, min(count, 1000)), newest="true")
        return EventPage(page["items"] if count > 0 else [], page.get("cursor"))

    async def follow(self, after: str | None = None, *, namespace: str | None = None) -> AsyncGenerator[Json, None]:
        """Events as they happen, from a cursor or from now on, across broken connections and restarts."""
        async with aclosing(self._session.follow(fleet_path("events"), after, namespace=namespace)) as found:
            async for item in found:
                yield item

    async def _page(self, **query: Any) -> Json:
        page: Json = await self._session.get(fleet_path("events"), **query)
        return page
