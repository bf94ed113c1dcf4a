"""Connections that agree on TLS: accepted, and no clients of anybody yet.

Here: knowing of them, so that a process that ends does not leave one of them alone. Not here: TLS itself (the event
loop's), what comes after it (`frontend`). Called by `worker`, where there is a certificate.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

_LOOK_S = 0.02
_LATE_S = 1.0


class Greetings:
    """Those of one process.

    Args:
        client: makes what serves a connection once it has agreed.
        limit_s: how long one may take; the event loop drops it then.
    """

    def __init__(self, client: Callable[[], asyncio.Protocol], limit_s: float) -> None:
        self._client = client
        self._limit_s = limit_s
        self._since: WeakKeyDictionary[_Greeting, float] = WeakKeyDictionary()
        """those that failed are told to nobody: they vanish"""

    def accepted(self) -> asyncio.Protocol:
        """For a connection that was accepted just now."""
        greeting = _Greeting(self)
        self._since[greeting] = time.monotonic()
        return greeting

    async def over(self) -> None:
        """Wait until every one accepted so far has agreed or failed."""
        while True:
            since = time.monotonic() - self._limit_s - _LATE_S
            if all(accepted_at <= since for accepted_at in list(self._since.values())):
                return
            await asyncio.sleep(_LOOK_S)

    def agreed(self, greeting: "_Greeting", transport: asyncio.BaseTransport) -> None:
        """It is a client from now on."""
        del self._since[greeting]
        client = self._client()
        cast(asyncio.Transport, transport).set_protocol(client)  # the event loop's own class is none of its kind
        client.connection_made(transport)


class _Greeting(asyncio.Protocol):
    """Serves a connection until both sides agree."""

    def __init__(self, greetings: Greetings) -> None:
        self._greetings = greetings

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Both sides agree."""
        self._greetings.agreed(self, transport)
