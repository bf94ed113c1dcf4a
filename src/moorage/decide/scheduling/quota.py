"""Quotas of namespaces within one cycle: a unit that would exceed one waits, and blocks nobody.

A namespace's use is the sum over its holdings (those of what is being stopped included), what is kept for its restarts,
its preemption plans and the head of the queue, and what this cycle placed. The store sums holdings again in the
transaction that places. A unit that may have any of several models keeps to those that are not used up. Called by
`assign`; pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from moorage.decide.scheduling.fleet import Fleet, devices, seen_gpus
from moorage.decide.scheduling.ledger import Spot
from moorage.decide.scheduling.line import Line
from moorage.decide.scheduling.order import Entry, Unit
from moorage.decide.scheduling.snapshot import Ask
from moorage.domain import quotas
from moorage.domain.quotas import Amounts, Over
from moorage.domain.reasons import Reason, reason

NOT_HELD = (*quotas.COUNTED, *quotas.RATES)
"""Limits that no place of a worker counts against."""


@dataclass(slots=True)
class Usage:
    """What namespaces hold, summed over holdings; kept up machine by machine."""

    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    _of: dict[str, list[tuple[str, Amounts]]] = field(default_factory=dict)

    def put(self, machine: str, held: Iterable[Mapping[str, object]]) -> None:
        """What is held on a machine, as the store gives it; replaces what was held there before."""
        for namespace, amounts in self._of.pop(machine, ()):
            quotas.add(self.totals[namespace], amounts, -1)
        found = [(str(holding["namespace"]), _held(holding)) for holding in held]
        for namespace, amounts in found:
            quotas.add(self.totals.setdefault(namespace, {}), amounts)
        if found:
            self._of[machine] = found


def _held(holding: Mapping[str, object]) -> Amounts:
    gpus, models = tuple(_each(holding["gpus"])), tuple(str(m) for m in _each(holding["models"]))
    cpu, memory = int(str(holding["cpu_milli"])), int(str(holding["memory_bytes"]))
    return quotas.held(len(gpus), models[: len(gpus)], cpu, memory)


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else ()


@dataclass(frozen=True, slots=True)
class Full:
    """A quota that a unit would exceed.

    Args:
        overs: the limits in question.
        any_of: one of them raised would do (models of which any was asked for); else all are in the way.
    """

    overs: tuple[Over, ...]
    any_of: bool = False

    @property
    def first(self) -> Over:
        """The one that is named: one that can never be met, if that is so."""
        never = next((over for over in self.overs if not over.ever), None)
        return self.overs[0] if never is None or not self.never else never

    @property
    def never(self) -> bool:
        """Whether the unit asks for more than the whole quota."""
        hopeless = [not over.ever for over in self.overs]
        return all(hopeless) if self.any_of else any(hopeless)


@dataclass(slots=True)
class Budget:
    """What namespaces with a quota use, as one cycle goes on.

    Args:
        limits: by namespace; those that cannot bind in this cycle are dropped (`settle`).
        used: by namespace.
    """

    fleet: Fleet
    limits: dict[str, Amounts] = field(default_factory=dict)
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    """namespaces whose use changed since the caller last asked and cleared this"""
    _asks: dict[tuple[int, tuple[str, ...]], Ask] = field(default_factory=dict)
    _models: tuple[str, ...] | None = None

    @staticmethod
    def of(fleet: Fleet, limits: Mapping[str, Amounts], usage: Usage) -> "Budget":
        """At the start of a cycle."""
        held: dict[str, Amounts] = {ns: {r: n for r, n in of.items() if r not in NOT_HELD} for ns, of in limits.items()}
        found = {ns: of for ns, of in held.items() if of}
        return Budget(fleet, found, {ns: dict(usage.totals.get(ns, {})) for ns in found})

    def copy(self) -> "Budget":
        """Another one at the same point."""
        used = {namespace: dict(amounts) for namespace, amounts in self.used.items()}
        return Budget(self.fleet, dict(self.limits), used, set(self.moved), dict(self._asks), self._models)

    def settle(self, line: Line) -> None:
        """Drop the quotas under which everything that waits fits: their work is looked at like anybody's."""
        if not self.limits:
            return
        wanted: dict[str, dict[str, int]] = {ns: dict(used) for ns, used in self.used.items()}
        for namespace, ask, count in _waiting(line):
            if namespace in wanted:
                quotas.add(wanted[namespace], self._at_most(ask, self.limits[namespace]), count)
        for namespace, sums in wanted.items():
            if all(sums.get(resource, 0) <= limit for resource, limit in self.limits[namespace].items()):
                del self.limits[namespace], self.used[namespace]

    def _at_most(self, ask: Ask, limits: Amounts) -> Amounts:
        """What a worker may come to count as, whichever models it gets."""
        request = ask.request
        found = {quotas.GPUS: request.gpus, quotas.CPU: request.cpu_milli, quotas.MEMORY: request.memory_bytes}
        if request.gpus:
            limited = (m for r in limits if (m := quotas.model_of(r)) is not None)
            found |= {quotas.of_model(m): request.gpus for m in limited if not request.models or m in request.models}
        return found

    def take(self, namespace: str, spot: Spot, times: int = 1) -> None:
        """Count a place; `times=-1` gives it back."""
        used = self.used.get(namespace)
        if used is None:
            return
        machine = self.fleet.room(spot.row).machine
        models = quotas.models_of(machine.capacity, devices(machine, spot.gpus)) if spot.gpus else ()
        quotas.add(used, quotas.held(spot.gpus.bit_count(), models, spot.cpu_milli, spot.memory_bytes), times)
        self.moved.add(namespace)

    # One unit

    def within(self, unit: Unit) -> Unit | Full:
        """The unit itself, or kept to models that are not used up; or what it would exceed."""
        namespace = unit.run.namespace
        limits = self.limits.get(namespace)
        if limits is None:
            return unit
        used, asked = self.used[namespace], asked_of(unit)
        overs = tuple(quotas.exceeded(limits, used, asked))
        if overs:
            return Full(overs)
        if not asked[quotas.GPUS] or all(quotas.model_of(resource) is None for resource in limits):
            return unit
        return self._kept_to_models(unit, lambda model: _over(limits, used, unit, model))

    def _kept_to_models(self, unit: Unit, over: Callable[[str], Over | None]) -> Unit | Full:
        members: list[Entry] = []
        for entry in unit.members:
            request = entry.ask.request
            candidates = request.models or self._all_models()
            overs = {model: found for model in candidates if (found := over(model)) is not None}
            if not request.gpus or not overs:
                members.append(entry)
                continue
            left = tuple(model for model in candidates if model not in overs)
            if not left:
                return Full(tuple(overs.values()), any_of=True)
            key = (id(entry.ask), left)
            if key not in self._asks:
                self._asks[key] = replace(entry.ask, request=replace(request, models=left))
            members.append(replace(entry, ask=self._asks[key]))
        return replace(unit, members=tuple(members))

    def _all_models(self) -> tuple[str, ...]:
        if self._models is None:
            gpus = (gpu for room in self.fleet.rooms() for gpu in seen_gpus(room.machine))
            self._models = tuple(sorted({str(gpu["model"]) for gpu in gpus if gpu.get("model")}))
        return self._models


def _waiting(line: Line) -> Iterator[tuple[str, Ask, int]]:
    """What waits, by namespace and ask, and how often."""
    counts = np.bincount(line.alike[line.alike >= 0], minlength=len(line.alikes))
    for alike, count in zip(line.alikes, counts.tolist(), strict=True):
        if alike is not None:
            yield alike.namespace, alike.ask, count
    for at in np.flatnonzero(line.alike < 0).tolist():
        for entry in line.units[at].members:
            yield entry.run.namespace, entry.ask, 1


def asked_of(unit: Unit) -> dict[str, int]:
    """What a unit asks for in sum, whichever of several models it gets."""
    sums = {quotas.GPUS: 0, quotas.CPU: 0, quotas.MEMORY: 0}
    for entry in unit.members:
        request = entry.ask.request
        models = request.models * request.gpus if len(request.models) == 1 else ()
        quotas.add(sums, quotas.held(request.gpus, models, request.cpu_milli, request.memory_bytes))
    return sums


def _over(limits: Amounts, used: Amounts, unit: Unit, model: str) -> Over | None:
    """Whether a model's limit would be exceeded if all of the unit that may have this model got it."""
    resource = quotas.of_model(model)
    if resource not in limits:
        return None
    requests = (entry.ask.request for entry in unit.members)
    asked = sum(r.gpus for r in requests if not r.models or model in r.models)
    over = Over(resource, used.get(resource, 0), asked, limits[resource])
    return over if over.used + asked > over.limit else None


def reason_of(full: Full, unit: Unit) -> Reason:
    """Why the unit waits."""
    over = full.first
    asked, limit = (quotas.shown(over.resource, amount) for amount in (over.asked, over.limit))
    if full.never:
        return reason("quota.never", resource=over.resource, asked=asked, limit=limit, total=unit.gang)
    used = quotas.shown(over.resource, over.used)
    return reason("quota.waiting", resource=over.resource, used=used, asked=asked, limit=limit, gang=unit.gang)


def reached(full: Full) -> Reason:
    """The note on its run, once a wait."""
    over = full.first
    used, asked, limit = (quotas.shown(over.resource, amount) for amount in (over.used, over.asked, over.limit))
    return reason("quota.reached", why=f"{over.resource}: {used} of {limit} are in use, {asked} asked for")


def raised(limits: Amounts, full: Full) -> Amounts:
    """The smallest quota under which the unit would not wait for it."""
    overs = [min(full.overs, key=lambda over: over.used + over.asked - over.limit)] if full.any_of else full.overs
    return {**limits, **{over.resource: over.used + over.asked for over in overs}}
