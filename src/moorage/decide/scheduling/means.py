"""What a worker needs of its machine beside room: mounts for plain processes, ports of its own, things to be enforced.

Pure. `Means` is that part of an ask, alike for alike workers; `suits` is the same question as `means_refusals`, which
words the answer. Called by `feasible`, and so by the scheduler and by `why`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.domain.nouns import Machine
from moorage.domain.reasons import Reason, reason

ENFORCED: Mapping[str, str] = {
    "outbound": "node.no_outbound",
    "sandbox": "node.no_sandbox",
    "tool_gateway": "node.no_tool_gateway",
}
"""Field of a run's spec → what a machine without that capability says."""

MOUNTS = "mounts"


@dataclass(frozen=True, slots=True)
class Means:
    """Needs of one worker.

    Args:
        capabilities: words that its machine must have reported.
        ports: its own ports on the machine's network, which only one worker of a machine can listen on.
    """

    capabilities: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()

    @staticmethod
    def of(run_spec: Mapping[str, Any], group: Mapping[str, Any]) -> "Means":
        """What a worker of this group needs."""
        runtime: Mapping[str, Any] = group.get("runtime") or {}
        shown: Sequence[Any] = (*(runtime.get("mounts") or ()), *(runtime.get("configs") or ()))
        process = runtime.get("runner", "process") == "process"
        wanted = [name for name in ENFORCED if run_spec.get(name) not in (None, False)]
        ports = sorted({int(e["port"]) for e in group.get("expose") or ()})
        return Means((*wanted, *((MOUNTS,) if shown and process else ())), tuple(ports))


NONE = Means()


def suits(machine: Machine, means: Means) -> bool:
    """Whether the machine can do all that is asked, whoever else is there."""
    return all(word in machine.capabilities for word in means.capabilities)


def means_refusals(means: Means, machine: Machine, taken: Iterable[int] = ()) -> Iterator[Reason]:
    """Why a worker with these needs is kept off this machine.

    Args:
        taken: ports that workers of this machine expose already.
    """
    for word in means.capabilities:
        if word not in machine.capabilities:
            why = f"{machine.name} has not reported that it can"
            yield reason(ENFORCED[word], why=why) if word in ENFORCED else reason("node.no_mounts", why=why)
    held = set(taken)
    for port in means.ports:
        if port in held:
            yield reason("node.port_taken", port=port)


def port_owner(port: int) -> str:
    """How an exposed port is named among those who have a worker on a machine."""
    return f"port/{port}"
