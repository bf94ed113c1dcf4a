"""`/machines…`: where things run."""

from typing import Annotated, Literal

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.deps import Actor, Deps, Key
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.api.queries import After, HistoryLimit, Paged
from moorage.control.reading import HISTORY_MAX
from moorage.domain.nouns import Machine
from moorage.domain.units import parse_duration

router = under_api("/machines", tag="machines")


class CordonBody(BaseModel):
    """Why nothing new may be placed on it; shown wherever the machine is."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)
    why: str = Field(min_length=1, max_length=1000)


class CacheBody(BaseModel):
    """What is wanted of a machine's models; `pin` is of a prefetch, to stay there."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)
    action: Literal["prefetch", "pin", "unpin", "evict"]
    source: str = Field(min_length=1, max_length=1000)
    pin: bool = False


class DrainBody(BaseModel):
    """How long what is served there may wait for its replacement: a duration, or the time (seconds since the epoch)."""

    model_config = ConfigDict(extra="forbid")
    grace: str | float | None = None
    until: float | None = None

    @property
    def grace_s(self) -> float | None:
        """Seconds.

        Raises:
            InvalidSpec: it is no duration.
        """
        return None if self.grace is None else parse_duration(self.grace)


@router.get("")
async def list_machines(deps: Deps, page: Paged) -> Response:
    """Machines that joined."""
    return json_response(await deps.reader.machines(page))


@router.get("/{name}")
async def get_machine(name: str, deps: Deps) -> Response:
    """One machine, by name or uid."""
    return json_response(await deps.reader.machine(name))


@router.get("/{name}/history")
async def machine_history(name: str, deps: Deps, after: After = None, limit: HistoryLimit = HISTORY_MAX) -> Response:
    """Everything that happened to it, oldest first."""
    return json_response(await deps.reader.history(Machine, None, name, after=after, limit=limit))


@router.get("/{name}/cache")
async def cache(name: str, deps: Deps) -> Response:
    """The models that it keeps: which bytes, how far those on their way are, who uses them."""
    return json_response(await deps.models.ask(await deps.reader.find(Machine, None, name)))


@router.post("/{name}/cache")
async def change_cache(name: str, body: CacheBody, deps: Deps) -> Response:
    """Have a model there in time, keep one, let it go, remove it; answered as `GET` is. Again changes nothing."""
    row = await deps.reader.find(Machine, None, name)
    return json_response(await deps.models.ask(row, body.action, body.source, pin=body.pin))


@router.post("/{name}/cordon")
async def cordon(name: str, body: CordonBody, deps: Deps, actor: Actor, key: Key) -> Response:
    """Place nothing new on it."""
    row = await deps.reader.find(Machine, None, name)
    return json_response(await deps.commands.cordon(row.name, why=body.why, actor=actor, key=key))


@router.post("/{name}/uncordon")
async def uncordon(name: str, deps: Deps, actor: Actor, key: Key) -> Response:
    """Use it again."""
    row = await deps.reader.find(Machine, None, name)
    return json_response(await deps.commands.uncordon(row.name, actor=actor, key=key))


@router.post("/{name}/drain")
async def drain(
    *, name: str, body: DrainBody, deps: Deps, actor: Actor, key: Key, dry_run: Annotated[bool, Query()] = False
) -> Response:
    """Empty it: runs are stopped and queued again, models are replaced elsewhere first where there is room."""
    row = await deps.reader.find(Machine, None, name)
    if dry_run:
        return json_response(await deps.commands.machine_dry_run(row.name, removed=False))
    answer = await deps.commands.drain_machine(row.name, grace_s=body.grace_s, until=body.until, actor=actor, key=key)
    return json_response(answer)


@router.delete("/{name}")
async def remove(name: str, deps: Deps, actor: Actor, key: Key, dry_run: Annotated[bool, Query()] = False) -> Response:
    """Take it out of the cluster: all that runs there is given up, and its agent stops it and exits."""
    row = await deps.reader.find(Machine, None, name)
    if dry_run:
        return json_response(await deps.commands.machine_dry_run(row.name, removed=True))
    return json_response(await deps.commands.remove_machine(row.name, actor=actor, key=key))
