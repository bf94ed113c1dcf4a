"""How `total_gpus` of a group is divided over workers, and what of a spec no machine could ever hold. Pure.

Machines are asked by the scheduler's own predicates. The division is even: every worker gets the same number of GPUs,
which some machine must have; of the divisions that fit what is free now, the one with the fewest workers is taken.
Called by `planning`, and at submission for warnings.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moorage.decide.running.request import request_of
from moorage.decide.scheduling.feasible import refusals
from moorage.decide.scheduling.fleet import matches, usable
from moorage.decide.scheduling.means import Means
from moorage.decide.scheduling.snapshot import Ask, Placement, Request, Room
from moorage.domain import limits
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import MachineState

LOOK_AGAIN_S = 60.0
"""When a fleet that did not do is looked at again, if it has not changed before."""


@dataclass(frozen=True, slots=True)
class Host:
    """What a machine that takes such a worker has of the GPUs asked for: in all, and held by nobody now."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Split:
    """So many workers with so many GPUs each."""

    workers: int
    gpus: int


def split(group: Mapping[str, Any], hosts: Sequence[Host]) -> Split | Reason:
    """Divide the group's `total_gpus`, over `machines` workers where it says so.

    Returns:
        A reason (`run.cannot_plan`) where it cannot be divided on these machines now.
    """
    total, machines = int(group["total_gpus"]), group.get("machines")
    cannot = _Cannot(str(group.get("name") or "worker"), total, machines)
    if machines is not None and total % machines:
        return cannot.because("uneven", f"{total} GPUs cannot be divided evenly over {machines} machines")
    if not hosts:
        return cannot.because("no_host", f"no machine can take a worker of group {cannot.group}")
    largest = max(h.total for h in hosts)
    sizes = [total // m for m in ([machines] if machines else _divisors(total)) if total // m <= largest]
    if not sizes:
        per_worker = total // (machines or 1)
        why = f"{total} GPUs on {machines} machines are {per_worker} for each, and the largest machine has {largest}"
        return cannot.because("per_worker_size", why, per_worker=per_worker)
    possible = [per for per in sizes if sum(h.total // per for h in hosts) * per >= total]
    if not possible:
        return _too_few(cannot, hosts)
    if machines is not None:  # how it is divided does not depend on what is free: the queue does the rest
        return Split(machines, total // machines)
    now = [per for per in possible if sum(h.free // per for h in hosts) * per >= total]
    if not now:
        free = max(h.free for h in hosts)
        return cannot.because("none_free", f"{free} GPUs are free on the largest machine now", free=free)
    return Split(total // now[0], now[0])


def _too_few(cannot: "_Cannot", hosts: Sequence[Host]) -> Reason:
    whole = sum(h.total for h in hosts)
    if cannot.machines is None and whole >= cannot.gpus:
        return cannot.because("uneven", f"{cannot.gpus} GPUs cannot be divided evenly over {len(hosts)} machines")
    return cannot.because("none_free", f"these machines have {whole} such GPUs in all", free=max(h.free for h in hosts))


@dataclass(frozen=True, slots=True)
class _Cannot:
    group: str
    gpus: int
    machines: int | None

    def because(self, why: str, detail: str, **more: Any) -> Reason:
        params = {"group": self.group, "gpus": self.gpus, "machines": self.machines, **more}
        return reason("run.cannot_plan", why=why, detail=detail, **params)


def _divisors(total: int) -> list[int]:
    """Numbers of workers over which GPUs can be divided, fewest first."""
    return [m for m in range(1, min(total, limits.WORKERS_MAX) + 1) if total % m == 0]


def hosts_of(
    run: Run, group: Mapping[str, Any], machines: Iterable[Machine], held: Mapping[str, frozenset[int]]
) -> list[Host]:
    """The machines that take a worker of this group and have GPUs of the kind.

    Args:
        held: by machine, the indexes of its GPUs that are held.
    """
    request = _request(group)
    ask = _ask(run, group, replace(request, gpus=0))
    out = []
    for machine in machines:
        if refusals(ask, Room(machine)):
            continue
        kind = [int(g["index"]) for g in machine.capacity.get("gpus") or () if _counts(request, g)]
        if kind:
            out.append(Host(len(kind), len([index for index in kind if index not in held.get(machine.uid, ())])))
    return out


def _counts(request: Request, gpu: dict[str, Any]) -> bool:
    healthy = not request.healthy_only or gpu.get("health", "ok") == "ok"
    return matches(request, gpu) and usable(gpu) and healthy


def warnings(run: Run, machines: Sequence[Machine]) -> tuple[str, ...]:
    """What of this run could not start on these machines even if nothing else ran there.

    Args:
        run: a run with the spec; it need not exist.
        machines: every machine, in whatever state.
    """
    here = [m for m in machines if m.state is not MachineState.REMOVED]
    if not here:
        return ("no machine has joined yet, so it waits until one does",)
    asked = (run.spec.get("placement") or {}).get("machines") or ()
    unknown = sorted(set(asked) - {m.name for m in here})
    if unknown:
        return (f"placement.machines names {', '.join(unknown)}, and no machine of that name has joined",)
    found = (_warning(run, group, here) for group in run.spec.get("groups") or ())
    return tuple(text for text in found if text is not None)


def _at_its_best(machine: Machine) -> Machine:
    return replace(machine, state=MachineState.READY, cordoned=None, draining=None, pressure=())


def _warning(run: Run, group: Mapping[str, Any], machines: Sequence[Machine]) -> str | None:
    name = group.get("name") or "worker"
    if group.get("total_gpus") is not None:
        found = split(group, hosts_of(run, group, [_at_its_best(m) for m in machines], {}))
        return f"group {name}: {found.message}" if isinstance(found, Reason) else None
    ask = _ask(run, group, _request(group))
    why: Counter[str] = Counter()
    for machine in machines:
        refused = refusals(ask, Room(_at_its_best(machine)))
        if not refused:
            return None
        why.update(r.message for r in refused)
    said, _ = why.most_common(1)[0]
    return f"no machine of this fleet could ever hold a worker of group {name}: {said}"


def _request(group: Mapping[str, Any]) -> Request:
    return Request.of(Worker(uid="", request=request_of(group.get("resources"))))


def _ask(run: Run, group: Mapping[str, Any], request: Request) -> Ask:
    return Ask.of(request, Placement.of(run, group.get("name")), Means.of(run.spec, group))
