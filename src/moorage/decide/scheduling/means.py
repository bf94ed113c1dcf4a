"""What a worker needs of its machine beside room: mounts for plain processes, a way to fetch models, ports, and what is
to be enforced.

Pure. `Means` is that part of an ask, alike for alike workers; `suits` is the same question as `means_refusals`, which
words the answer. Called by `feasible`, and so by the scheduler and by `why`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.domain.nouns import Machine
from moorage.domain.reasons import Reason, reason
from moorage.domain.sources import HUB

ENFORCED: Mapping[str, str] = {
    "outbound": "node.no_outbound",
    "sandbox": "node.no_sandbox",
    "tool_gateway": "node.no_tool_gateway",
}
"""Field of a run's spec → what a machine without that capability says."""

MOUNTS, MODELS = "mounts", "models"
SAID: Mapping[str, str] = {**ENFORCED, MOUNTS: "node.no_mounts", MODELS: "node.no_models"}
"""Each capability → what a machine without it says."""
SITE = "moorage/site"
"""Label that says where a machine is."""


@dataclass(frozen=True, slots=True)
class DriveNeed:
    """One drive that a worker uses, with what is known of it.

    Args:
        name: its name.
        place: a copy on the worker's machine will do.
        machine, machine_name: uid and name of the machine that has the data; None: there is no such drive.
        size_bytes: room that a copy takes.
        site: where it is; None: in no site in particular.
        unusable: why it cannot be used now, or None.
    """

    name: str
    place: bool = False
    machine: str | None = None
    machine_name: str = ""
    size_bytes: int = 0
    site: str | None = None
    unusable: str | None = None

    @staticmethod
    def of(use: Mapping[str, Any]) -> "DriveNeed":
        """From an entry of a run's spec to which what is known of the drive was added (`drive`)."""
        name, place = str(use["name"]), bool(use.get("place"))
        known: Mapping[str, Any] | None = use.get("drive")
        if known is None:
            return DriveNeed(name, place)
        return DriveNeed(
            name,
            place,
            known["machine"],
            known["machine_name"],
            int(known["size"]),
            known["site"],
            known["unusable"],
        )


@dataclass(frozen=True, slots=True)
class Means:
    """Needs of one worker.

    Args:
        capabilities: words that its machine must have reported.
        ports: its own ports on the machine's network, which only one worker of a machine can listen on.
        drives: data that it must be near to, or have room for a copy of.
    """

    capabilities: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    drives: tuple[DriveNeed, ...] = ()

    @staticmethod
    def of(run_spec: Mapping[str, Any], group: Mapping[str, Any]) -> "Means":
        """What a worker of this group needs."""
        runtime: Mapping[str, Any] = group.get("runtime") or {}
        guarded = [use for use in run_spec.get("drives") or () if use.get("read_only")]
        shown: Sequence[Any] = (*(runtime.get("mounts") or ()), *(runtime.get("configs") or ()), *guarded)
        process = runtime.get("runner", "process") == "process"
        wanted = [name for name in ENFORCED if run_spec.get(name) not in (None, False)]
        ports = sorted({int(e["port"]) for e in group.get("expose") or ()})
        drives = tuple(DriveNeed.of(use) for use in run_spec.get("drives") or ())
        able = (*((MOUNTS,) if shown and process else ()), *((MODELS,) if fetches(group) else ()))
        return Means((*wanted, *able), tuple(ports), drives)


NONE = Means()


def fetches(group: Mapping[str, Any]) -> bool:
    """Whether the model of a worker of this group comes from a hub."""
    return str((group.get("model") or {}).get("source") or "").startswith(HUB)


def suits(machine: Machine, means: Means) -> bool:
    """Whether the machine can do all that is asked, whoever else is there."""
    able = all(word in machine.capabilities for word in means.capabilities)
    return able and all(_drive_refusal(need, machine) is None for need in means.drives)


def means_refusals(means: Means, machine: Machine, taken: Iterable[int] = ()) -> Iterator[Reason]:
    """Why a worker with these needs is kept off this machine.

    Args:
        taken: ports that workers of this machine expose already.
    """
    for word in means.capabilities:
        if word not in machine.capabilities:
            why = f"{machine.name} has not reported that it can"
            yield reason(SAID[word], why=why)
    for need in means.drives:
        why_not = _drive_refusal(need, machine)
        if why_not is not None:
            yield why_not
    held = set(taken)
    for port in means.ports:
        if port in held:
            yield reason("node.port_taken", port=port)


def _drive_refusal(need: DriveNeed, machine: Machine) -> Reason | None:
    """Why this machine cannot have the drive, or None."""
    if need.machine is None:
        return reason("node.drive_missing", drive=need.name)
    if need.machine == machine.uid:
        return None  # whether it is ready is a reason of its own
    if need.unusable is not None:
        return reason("node.drive_unusable", drive=need.name, why=need.unusable)
    if need.site is not None and machine.labels.get(SITE) != need.site:
        return reason("node.drive_elsewhere", drive=need.name, machine=need.machine_name, site=need.site)
    if not need.place:
        why = f"it is on {need.machine_name}, and the spec asks for no copy (`place`)"
        return reason("node.drive_unusable", drive=need.name, why=why)
    if not machine.data:
        return reason("place.data_location", machine=machine.name)
    free = int(machine.data.get("free_bytes") or 0)
    if free < need.size_bytes:
        return reason("node.drive_no_room", drive=need.name, need=need.size_bytes, free=free)
    return None


def port_owner(port: int) -> str:
    """How an exposed port is named among those who have a worker on a machine."""
    return f"port/{port}"
