"""Containers with our label of which nothing is known but what the engine says: listed, and removed in order.

Whose one is, the caller judges by its environment. Called by `host.ContainerHost` for the agent, once for each engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.ports import Clock
from moorage.runners.containers.api import LABEL, LABEL_VALUE, EngineApi, EngineError

LOOK_PAUSE_S = 0.2
SIGTERM, SIGKILL = 15, 9
KILLED_S = 10.0
"""So long a killed container may take to end."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One container with our label.

    Args:
        container: id.
        name: as the engine lists it.
        env: its environment, as it was created.
        running: whether its first process lives.
    """

    container: str
    name: str
    env: Mapping[str, str]
    running: bool


async def labelled(api: EngineApi) -> tuple[Labelled, ...]:
    """All of them, ended ones too, whoever started them.

    Raises:
        EngineError: the engine does not answer.
    """
    rows = await api.listed(LABEL, LABEL_VALUE)
    found = [await api.inspect(str(row["Id"])) for row in rows]
    return tuple(_read(one) for one in found if one is not None)


async def discard(api: EngineApi, container: str, grace_s: float, clock: Clock) -> None:
    """SIGTERM, then after the grace at most kill and remove it.

    Raises:
        EngineError: the engine does not answer, or cannot remove it.
    """
    await _ended(api, container, SIGTERM, grace_s, clock)
    await api.remove(container)


async def stop_other(api: EngineApi, container: str, number: int, grace_s: float, clock: Clock) -> None:
    """Signal one that is not ours, and kill it after the grace; it is left there, ended.

    Raises:
        EngineError: the engine does not answer.
    """
    if not await _ended(api, container, number, grace_s, clock):
        await _ended(api, container, SIGKILL, KILLED_S, clock)


async def _ended(api: EngineApi, container: str, number: int, limit_s: float, clock: Clock) -> bool:
    """Signal it, and whether it ended within the limit."""
    try:
        await api.kill(container, number)
    except EngineError as cause:
        if cause.unreachable:
            raise  # any other answer: it does not run any more, which the next question tells
    deadline = clock.monotonic() + limit_s
    while clock.monotonic() < deadline:
        found = await api.inspect(container)
        if found is None or not _read(found).running:
            return True
        await clock.sleep(LOOK_PAUSE_S)
    return False


def _read(found: Mapping[str, Any]) -> Labelled:
    config, state = found.get("Config") or {}, found.get("State") or {}
    env = dict(pair.split("=", 1) for pair in config.get("Env") or () if "=" in pair)
    return Labelled(str(found["Id"]), str(found.get("Name") or "").lstrip("/"), env, bool(state.get("Running")))
