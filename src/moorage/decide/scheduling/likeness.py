"""What of a worker and its run decides about its place: the same object for workers alike, made once.

A queue of 80,000 has a few kinds of workers. Reading the whole of a spec for each of them takes ten times as long as
seeing that it says what another one said. Pure; used by `queued`, and `order` for times.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.decide.scheduling.means import ENFORCED, Means, fetches, port_owner
from moorage.decide.scheduling.snapshot import Ask, Labels, Placement, Request, Topology, group_of
from moorage.domain.nouns import Run, Worker

KINDS_MAX = 4096
"""Kinds that are remembered; when there are more they are all forgotten, and found again."""

_OF_RUN = ("placement", "drives", "gang", "time_limit", *ENFORCED)
_OF_RUNTIME = ("runner", "mounts", "configs", "stop")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Workers alike.

    Args:
        ask: the very same object for workers alike, so that it can be compared by identity.
        ports: what it counts under for each of its own ports.
        spread: its machine must be free of other workers of its owner.
        limit_s: seconds after which it is stopped, with its grace; None: it has no time limit.
        gang: its run is placed whole.
    """

    ask: Ask
    ports: tuple[str, ...]
    spread: bool
    topology: Topology | None
    limit_s: float | None
    gang: bool


@dataclass(slots=True)
class Kinds:
    """The kinds of what waits, and how many workers wait with each ask."""

    _known: dict[tuple[str, ...], Kind] = field(default_factory=dict)
    _asks: dict[Ask, Ask] = field(default_factory=dict)
    _counts: dict[int, int] = field(default_factory=dict)
    """by identity of the ask"""

    def copy(self) -> "Kinds":
        """Another one of the same."""
        return Kinds(dict(self._known), dict(self._asks), dict(self._counts))

    def counts(self) -> dict[Ask, int]:
        """How many workers wait with each ask."""
        return {ask: self._counts[id(ask)] for ask in self._asks}

    def come(self, worker: Worker, run: Run, pools: Mapping[str, Labels]) -> Kind:
        """The kind of a worker that waits from now on."""
        key = _key(worker, run)
        kind = self._known.get(key)
        if kind is None:
            kind = self._make(worker, run, pools.get(run.namespace, ()))
            if len(self._known) >= KINDS_MAX:
                self._known.clear()
            self._known[key] = kind
        self._counts[id(kind.ask)] = self._counts.get(id(kind.ask), 0) + 1
        return kind

    def go(self, ask: Ask) -> None:
        """One that asks for this waits no longer."""
        self._counts[id(ask)] -= 1
        if not self._counts[id(ask)]:
            del self._counts[id(ask)], self._asks[ask]
            self._known.clear()  # another object may come to stand for this ask

    def _make(self, worker: Worker, run: Run, pool: Labels) -> Kind:
        group = group_of(run, worker.group)
        placement, means = Placement.of(run, worker.group), Means.of(run.spec, group)
        ask = Ask.of(Request.of(worker), placement, means, pool)
        return Kind(
            self._asks.setdefault(ask, ask),
            tuple(port_owner(port) for port in means.ports),
            placement.spread == "machine",
            placement.topology,
            time_limit_s(run, worker),
            bool(run.spec.get("gang")),
        )


def _key(worker: Worker, run: Run) -> tuple[str, ...]:
    """All that `Kinds` reads of a worker and its run, as text; equal only for what is alike."""
    spec, group = run.spec, group_of(run, worker.group)
    runtime: Mapping[str, Any] = group.get("runtime") or {}
    return (
        run.namespace,
        repr(worker.request),
        repr([spec.get(name) for name in _OF_RUN]),
        repr([group.get("expose"), fetches(group), *(runtime.get(name) for name in _OF_RUNTIME)]),
    )


def time_limit_s(run: Run, worker: Worker) -> float | None:
    """Seconds from its start after which a worker is surely gone: its time limit and its grace."""
    limit = run.spec.get("time_limit")
    return None if limit is None else float(limit) + grace_s(run, worker)


def grace_s(run: Run, worker: Worker) -> float:
    """Seconds between asking a worker to stop and killing it, when nothing else is said."""
    stop: Mapping[str, Any] = (group_of(run, worker.group).get("runtime") or {}).get("stop") or {}
    return float(stop.get("grace", 20.0))
