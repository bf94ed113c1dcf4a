"""One conversation with a control plane: requests, retries under one key, pages, streams that resume.

Written once, as coroutines over a `Transport`; every resource of the SDK goes through here.
"""

import json
import re
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from moorage.client.calls import Answer, Call, NoAnswer, StreamRefused, Transport, Trouble
from moorage.client.failures import failure, told_failure, unreachable
from moorage.client.sse import Frame, frames
from moorage.domain.errors import Gone, InvalidSpec, MoorageError
from moorage.domain.ids import check_name

RETRY_WAITS_S = (0.2, 1.0)
"""Waits before a mutation is sent again under its key: long enough for a restarting server, short enough to watch."""

STREAM_SILENCE_S = 60.0
"""Servers give a sign of life every 15 s; four times that without one is a dead connection."""

RESUME_WAIT_S = 0.5
RESUME_WAIT_MAX_S = 5.0

PAGE = 500
INTERVAL_S = 1.0
"""Between two reads of a wait: a deployment takes seconds to start, and a read costs the server a millisecond."""

SSE = "text/event-stream"

API = "/api/v1"

Json = dict[str, Any]


_NAMED = frozenset(("deployments", "runs", "endpoints"))
"""Collections whose members go by a name (or a uid, which is written like one)."""

_SEGMENT = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,255}")
"""Every name, uid and request id. A path of other characters would mean something else, or nothing."""


def fleet_path(*parts: str) -> str:
    """`/api/v1/PARTS…`, each part quoted.

    Raises:
        InvalidSpec: a part is empty, or nothing goes by such a name.
    """
    for part in parts:
        if not _SEGMENT.fullmatch(part):
            problem = "has characters that no name or id has" if part else "is empty"
            raise InvalidSpec(f"{part!r} names nothing: it {problem}", remedy="`moor ls` shows the names there are")
    return "/".join((API, *(quote(part, safe="") for part in parts)))


class Session:
    """Speaks wire.

    Args:
        transport: how calls travel.
        namespace: where names are looked up unless said otherwise.
        timeout_s: seconds for one request.
    """

    def __init__(self, transport: Transport, namespace: str, timeout_s: float) -> None:
        self.transport = transport
        self.namespace = namespace
        self.timeout_s = timeout_s

    def path(self, collection: str, *parts: str, namespace: str | None = None) -> str:
        """`/api/v1/namespaces/NS/COLLECTION/PARTS…`.

        Raises:
            InvalidSpec: a name is none that an object can have.
        """
        where = check_name(self.namespace if namespace is None else namespace, "namespace")
        if parts and collection in _NAMED:
            check_name(parts[0])
        return fleet_path("namespaces", where, collection, *parts)

    async def get(self, path: str, *, limit_s: float | None = None, **query: Any) -> Any:
        """A read. One more try when the connection broke (a kept one that the server had closed)."""
        call = Call("GET", path, query, limit_s=limit_s or self.timeout_s)
        try:
            return self._value(await self.transport.send(call))
        except NoAnswer as cause:
            if cause.trouble is not Trouble.BROKEN:
                raise unreachable(cause, self.transport.base_url) from cause
        try:
            return self._value(await self.transport.send(call))
        except NoAnswer as cause:
            raise unreachable(cause, self.transport.base_url) from cause

    async def change(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        **query: Any,
    ) -> Any:
        """A mutation under an idempotency key, sent again under the same key while no answer comes.

        Args:
            key: idempotency key; None draws one.
            timeout_s: for all of it, where that is less than usual.
        """
        limit_s = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        until = self.transport.monotonic() + limit_s
        own = {**(headers or {}), "Idempotency-Key": key or uuid.uuid4().hex}
        call = Call(method, path, query, body, own, limit_s)
        for wait_s in (*RETRY_WAITS_S, None):
            try:
                return self._value(await self.transport.send(call))
            except NoAnswer as cause:
                left_s = until - self.transport.monotonic()
                if wait_s is None or left_s <= wait_s:
                    raise unreachable(cause, self.transport.base_url) from cause
                await self.transport.sleep(wait_s)
                call = replace(call, limit_s=left_s - wait_s)
        raise AssertionError("the last try returns or raises")

    async def all(self, path: str, *, limit_s: float | None = None, **query: Any) -> list[Json]:
        """Every item of a list, page after page."""
        items: list[Json] = []
        after: str | None = None
        while True:
            page = await self.get(path, limit_s=limit_s, limit=PAGE, after=after, **query)
            if isinstance(page, list):
                return page
            items += page["items"]
            following = page.get("next")
            if not following or following == after:
                return items
            after = following

    async def lines(self, path: str, accept: str, **query: Any) -> AsyncGenerator[str, None]:
        """Lines of one answer as they come.

        Raises:
            NoAnswer: it broke off.
        """
        call = Call("GET", path, query, headers={"Accept": accept}, limit_s=STREAM_SILENCE_S)
        try:
            async with aclosing(self.transport.stream(call)) as found:
                async for line in found:
                    yield line
        except StreamRefused as refused:
            raise failure(refused.answer, self.transport.base_url) from None

    async def frames(self, path: str, **query: Any) -> AsyncGenerator[Frame, None]:
        """Server-sent events of one connection."""
        async with aclosing(self.lines(path, SSE, **query)) as lines, aclosing(frames(lines)) as found:
            async for frame in found:
                yield frame

    async def follow(self, path: str, after: str | None, **query: Any) -> AsyncGenerator[Json, None]:
        """Events as they happen, across broken connections and restarts of the server.

        Raises:
            Gone: the cursor is not known any more.
            Unavailable: the very first connection was not answered.
        """
        wait_s, began = RESUME_WAIT_S, False
        while True:
            try:
                async with aclosing(self.frames(path, after=after, **query)) as found:
                    async for frame in found:
                        began, wait_s = True, RESUME_WAIT_S
                        after = frame.id or after
                        if frame.event == "error":
                            raise told_failure(json.loads(frame.data))
                        if frame.data:
                            item = json.loads(frame.data)
                            after = item.get("cursor") or after
                            yield item
            except NoAnswer as cause:
                if not began:
                    raise unreachable(cause, self.transport.base_url) from cause
            except MoorageError as error:
                if isinstance(error, Gone) or not (began and error.retryable):
                    raise
            await self.transport.sleep(wait_s)
            wait_s = min(RESUME_WAIT_MAX_S, wait_s * 2)

    def _value(self, answer: Answer) -> Any:
        if answer.status >= 400:
            raise failure(answer, self.transport.base_url)
        if not answer.content:
            return {}
        try:
            return json.loads(answer.content)
        except ValueError:
            raise failure(answer, self.transport.base_url) from None
