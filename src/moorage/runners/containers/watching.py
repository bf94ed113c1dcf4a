"""News of one engine for all its containers of ours: the event stream, and a poll for what it does not tell.

Both only wake the containers concerned. One list call a period serves all of them; nothing is asked while there is
nothing to watch. Called by `host`.
"""

import asyncio
import json
from typing import Any

from moorage.ports import Clock
from moorage.runners.containers.api import LABEL, LABEL_VALUE, EngineApi, EngineError
from moorage.runners.containers.hosted import POLL_S, HostedContainer

RETRY_S, RETRY_MAX_S = 0.1, 5.0
_NEWS = frozenset({"start", "die", "died", "oom", "remove", "destroy", "stop", "kill", "cleanup"})


class EngineWatch:
    """Watches one engine while there is something to watch.

    Args:
        api: the engine.
        clock: for the poll's period and pauses.
    """

    def __init__(self, api: EngineApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._watched: dict[str, HostedContainer] = {}
        self._loops: list[asyncio.Task[None]] = []
        self.listening = False

    def add(self, container: HostedContainer) -> None:
        """Watch it until it is removed from here."""
        self._watched[container.container] = container
        if not self._loops:
            self._loops = [asyncio.create_task(loop()) for loop in (self._listen, self._poll)]

    def remove(self, container: HostedContainer) -> None:
        """Watch it no more."""
        if self._watched.get(container.container) is container:
            del self._watched[container.container]
        if not self._watched:
            self._end_loops()

    async def aclose(self) -> None:
        """Watch nothing any more."""
        for container in tuple(self._watched.values()):
            container.close()
        loops = tuple(self._loops)
        self._end_loops()
        await asyncio.gather(*loops, return_exceptions=True)

    def _end_loops(self) -> None:
        for loop in self._loops:
            loop.cancel()
        self._loops = []
        self.listening = False

    async def _listen(self) -> None:
        pause = RETRY_S
        while True:
            try:
                async with self._api.events() as lines:
                    self.listening = True
                    pause = RETRY_S
                    for container in tuple(self._watched.values()):
                        container.wake()  # what happened while nobody listened
                    async for line in lines:
                        self._hear(line)
            except EngineError:
                pass  # it is away, which the next try and the poll find out
            self.listening = False
            await self._clock.sleep(pause)
            pause = min(pause * 2, RETRY_MAX_S)

    def _hear(self, line: str) -> None:
        event: dict[str, Any] = json.loads(line) if line.strip() else {}
        container = self._watched.get(str((event.get("Actor") or {}).get("ID") or event.get("id") or ""))
        if container is not None and event.get("Action", event.get("status")) in _NEWS:
            container.wake()

    async def _poll(self) -> None:
        while True:
            await self._clock.sleep(POLL_S)
            try:
                rows = await self._api.listed(LABEL, LABEL_VALUE)
            except EngineError:
                continue  # nothing is known, so nothing follows
            states = {str(row["Id"]): str(row.get("State") or "") for row in rows}
            for container in tuple(self._watched.values()):
                container.note_listed(states.get(container.container, "missing"))
