"""`/events`: everything that happened, as pages or as a stream that loses and repeats nothing.

The stream is server-sent events: each event's id is its cursor, so that a client which comes back with `Last-Event-ID`
(or `?after=`) goes on exactly there. Events that a filter hides still move the id. A cursor that is gone is answered
410 before anything is sent.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import Header, Query, Response
from starlette.responses import StreamingResponse

from moorage.api.deps import ApiDeps, Deps
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.api.queries import After, HistoryLimit
from moorage.api.streams import paced
from moorage.control.views import change_object
from moorage.domain.changes import HistoryRow
from moorage.domain.errors import MoorageError

router = under_api(tag="events")

SSE = "text/event-stream"


@router.get("/events")
async def events(
    *,
    deps: Deps,
    after: After = None,
    limit: HistoryLimit = 200,
    namespace: str | None = None,
    root: Annotated[str | None, Query(description="uid of a deployment or run: only what belongs to it")] = None,
    newest: Annotated[bool, Query(description="the last `limit` rows")] = False,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """A JSON page, oldest first; with `Accept: text/event-stream` a stream from the cursor, or from now on."""
    if SSE not in accept:
        page = await deps.reader.events(namespace=namespace, root=root, after=after, limit=limit, newest=newest)
        return json_response(page)
    start = last_event_id or after
    if start is None:
        start = await deps.store.cursor()
    else:
        await deps.store.history(after=start, limit=1)  # raises Gone while a status can still be sent
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(deps, start, namespace, root), media_type=SSE, headers=headers)


async def _stream(deps: ApiDeps, start: str, namespace: str | None, root: str | None) -> AsyncIterator[bytes]:
    yield _id(start)
    batches = deps.store.follow(start)
    try:
        async for rows in paced(batches, deps.closing, deps.clock, deps.settings.quiet_s):
            yield b": nothing new\n\n" if rows is None else _batch(rows, namespace, root)
    except MoorageError as error:  # the cursor went while the stream was open
        yield b"event: error\ndata: " + _line(error.to_wire()) + b"\n\n"


def _batch(rows: Sequence[HistoryRow], namespace: str | None, root: str | None) -> bytes:
    out = []
    for row in rows:
        shown = (namespace is None or row.namespace == namespace) and (root is None or row.root == root)
        if shown:
            out.append(b"id: " + row.cursor.encode() + b"\ndata: " + _line(change_object(row)) + b"\n\n")
    if rows and not out:
        return _id(rows[-1].cursor)
    return b"".join(out)


def _id(cursor: str) -> bytes:
    """Moves the client's `Last-Event-ID` without an event."""
    return f"id: {cursor}\n\n".encode()


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
