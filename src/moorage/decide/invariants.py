"""What must be true of the ledger of GPUs whatever happened, checked apart from the code that keeps it so.

Used by property tests, by simulations, and at the start of a leadership, where a violation is said and counted: a
control plane that stopped over one would take the evidence, and everybody's work, with it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moorage.decide.scheduling.accounts import Holder, Kept, Line
from moorage.domain.nouns import Machine


def gpu_violations(
    machine: Machine, holdings: Sequence[Mapping[str, Any]], kept: Iterable[Kept], lines: Sequence[Line]
) -> tuple[str, ...]:
    """Everything that does not agree on one machine; empty means all does.

    Args:
        machine: its row.
        holdings: what is held there: {worker, epoch, gpus}.
        kept: reservations; those of other machines are passed over.
        lines: the ledger's lines of this machine.
    """
    reported = [int(g["index"]) for g in machine.capacity.get("gpus") or ()]
    held = [int(gpu) for holding in holdings for gpu in holding["gpus"]]
    mine = [k for k in kept if k.machine == machine.uid]
    found = [
        *_twice(reported, "is reported twice"),
        *_twice(held, "is held twice"),
        *_twice([k.gpu for k in mine], "is reserved twice"),
        *_twice([line.index for line in lines], "is in two states"),
        *_capacity(reported, held, lines),
        *_holders(holdings, lines),
        *_reservations(mine, lines),
        *_spoilt(lines),
    ]
    return tuple(f"machine {machine.name or machine.uid}: {text}" for text in found)


def _twice(indexes: Iterable[int], what: str) -> Iterator[str]:
    return (f"GPU {index} {what}" for index, count in Counter(indexes).items() if count > 1)


def _capacity(reported: Sequence[int], held: Sequence[int], lines: Sequence[Line]) -> Iterator[str]:
    """Totals are the capacity, with what is held though it is not reported any more."""
    wanted = set(reported) | set(held)
    if {line.index for line in lines} != wanted:
        yield f"the ledger has GPUs {sorted(line.index for line in lines)}, the machine {sorted(wanted)}"
    sums = Counter(line.holder for line in lines)
    if sum(sums.values()) != len(wanted):
        yield f"{sum(sums.values())} GPUs in all states together, and {len(wanted)} in all"


def _holders(holdings: Sequence[Mapping[str, Any]], lines: Sequence[Line]) -> Iterator[str]:
    """What is held is what holdings say, by whom they say."""
    rows = {int(gpu): str(holding["worker"]) for holding in holdings for gpu in holding["gpus"]}
    told = {line.index: line.worker for line in lines if line.holder is Holder.HELD}
    for index in sorted(rows.keys() | told.keys()):
        if rows.get(index) != told.get(index):
            yield f"GPU {index} is held by {rows.get(index)}, and the ledger says {told.get(index)}"


def _reservations(kept: Sequence[Kept], lines: Sequence[Line]) -> Iterator[str]:
    """What is reserved is what reservations say, but for what is held until then, or of no use now."""
    owners = {k.gpu: k.owner for k in kept}
    for line in lines:
        owner = line.kept.owner if line.kept is not None else None
        if line.holder is Holder.RESERVED and owner != owners.get(line.index):
            yield f"GPU {line.index} is reserved for {owners.get(line.index)}, and the ledger says {owner}"
        if line.holder is Holder.FREE and line.index in owners:
            yield f"GPU {line.index} is reserved for {owners[line.index]}, and the ledger calls it free"


def _spoilt(lines: Sequence[Line]) -> Iterator[str]:
    """What is faulty or used by strangers is given to nobody: neither free nor reserved."""
    for line in lines:
        given = line.holder in (Holder.FREE, Holder.RESERVED)
        if given and line.gpu.get("health", "ok") == "faulty":
            yield f"GPU {line.index} is faulty, and the ledger says {line.holder}"
        if given and line.gpu.get("foreign_bytes"):
            yield f"GPU {line.index} is used by strangers, and the ledger says {line.holder}"
