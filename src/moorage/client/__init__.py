"""The SDK: `Client` and `AsyncClient`, one implementation under both. Speaks wire only.

Importing it loads httpx, and neither pydantic nor YAML: those come when a spec is handed in.
"""

from moorage.client.aio import AsyncClient
from moorage.client.applied import AsyncApplied
from moorage.client.sync import Applied, Client
from moorage.client.waiting import Bound, Goal
from moorage.client.watching import Outcome

__all__ = ["Applied", "AsyncApplied", "AsyncClient", "Bound", "Client", "Goal", "Outcome"]
