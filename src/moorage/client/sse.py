"""Server-sent events out of lines. Pure; called by `session`."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: its kind (`event:`), its data (several lines joined) and its id."""

    event: str
    data: str
    id: str | None


async def frames(lines: AsyncIterator[str]) -> AsyncGenerator[Frame, None]:
    """Events of a stream. A comment (a sign of life) gives nothing; a last event that was cut off is dropped.

    An id without data gives an event without data: where to go on from, before anything has happened.
    """
    event, data = "message", list[str]()
    last_id: str | None = None
    told_id: str | None = None
    async for line in lines:
        if not line:
            if data or last_id != told_id:
                yield Frame(event, "\n".join(data), last_id)
            event, data, told_id = "message", [], last_id
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            last_id = value
