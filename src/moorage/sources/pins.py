"""What a source means now, for the control plane: asked once, briefly, and told apart by who must act.

The `ModelSources` of the real graph.
"""

import asyncio

from moorage.domain.errors import NotFound, Unavailable
from moorage.domain.sources import HubSource
from moorage.sources.hub import Hub, SourceError

ASK_S = 10.0
"""Whoever applies waits for it."""


class HubPins:
    """Asks a hub.

    Args:
        hub: which.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def commit_of(self, source: HubSource, token: str | None) -> str:
        """The commit that a source means now.

        Raises:
            NotFound: its repository is there and has no such revision.
            Unavailable: it cannot be told here. A repository that is not seen may be one that others may see.
        """
        try:
            async with asyncio.timeout(ASK_S):
                return (await self._hub.resolve(source, token)).commit
        except TimeoutError:
            raise Unavailable(f"the hub of {source} did not answer within {ASK_S:g} s") from None
        except SourceError as cause:
            if cause.kind == "revision":
                raise NotFound(f"{source.repo} has no revision {source.revision}", target=str(source)) from cause
            raise Unavailable(cause.message) from cause
