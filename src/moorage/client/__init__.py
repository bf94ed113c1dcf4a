"""The SDK: `Client` and `AsyncClient`, one implementation under both. Speaks wire only.

Importing it loads httpx, and neither pydantic nor YAML: those come when a spec is handed in, and what waits when
something is waited for.
"""

from typing import TYPE_CHECKING, Any

from moorage.client.aio import AsyncClient
from moorage.client.applied import AsyncApplied
from moorage.client.sync import Applied, Client

if TYPE_CHECKING:
    from moorage.client.waiting import Bound, Goal
    from moorage.client.watching import Outcome

__all__ = ["Applied", "AsyncApplied", "AsyncClient", "Bound", "Client", "Goal", "Outcome"]


def __getattr__(name: str) -> Any:
    if name in ("Bound", "Goal"):
        from moorage.client import waiting

        return getattr(waiting, name)
    if name == "Outcome":
        from moorage.client.watching import Outcome

        return Outcome
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
