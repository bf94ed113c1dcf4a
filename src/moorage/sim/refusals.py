"""Why tasks never started, in groups: the scheduler's own reason, and what keeps them off the machines in the end.

Called by `play`.
"""

from dataclasses import dataclass, field

from moorage.decide.scheduling import explain
from moorage.decide.scheduling.fleet import Fleet
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.order import Entry
from moorage.decide.scheduling.snapshot import Ask
from moorage.domain.reasons import Reason


@dataclass(frozen=True, slots=True)
class Never:
    """Tasks that did not start, by why.

    Args:
        code, message: the reason of their last wait.
        sizes: how many of each size class.
        machines: by reason code, how many machines refuse a task for it when the simulation ends; mean over the tasks.
    """

    code: str
    message: str
    tasks: int
    sizes: dict[str, int]
    machines: dict[str, float]


@dataclass(slots=True)
class _Group:
    sizes: dict[str, set[str]] = field(default_factory=dict)
    """runs by size class"""
    asks: dict[Ask, list[Entry]] = field(default_factory=dict)


@dataclass(slots=True)
class Refusals:
    """Runs with workers that did not start, by reason."""

    _groups: dict[tuple[str, str], _Group] = field(default_factory=dict)

    def note(self, run: str, size: str, entry: Entry, why: Reason) -> None:
        """A worker of a run does not start. Saying it again changes nothing but what machines count for."""
        group = self._groups.setdefault((why.code, why.message), _Group())
        group.sizes.setdefault(size, set()).add(run)
        group.asks.setdefault(entry.ask, []).append(entry)

    def told(self, fleet: Fleet) -> tuple[Never, ...]:
        """All of them, the largest group first.

        Args:
            fleet: as it is in the end.
        """
        ledger = Ledger(fleet)
        found = [
            Never(
                code,
                message,
                sum(map(len, group.sizes.values())),
                {size: len(runs) for size, runs in group.sizes.items()},
                _machines(ledger, group),
            )
            for (code, message), group in self._groups.items()
        ]
        return tuple(sorted(found, key=lambda never: (-never.tasks, never.code, never.message)))


def _machines(ledger: Ledger, group: _Group) -> dict[str, float]:
    """How many machines refuse for each reason, mean over the workers of the group; the commonest first."""
    sums: dict[str, int] = {}
    for entries in group.asks.values():
        for refused in explain.groups(ledger, entries[0]):
            for code in {why.code for why in refused.reasons}:
                sums[code] = sums.get(code, 0) + len(refused.rows) * len(entries)
    total = sum(len(entries) for entries in group.asks.values())
    return {code: count / total for code, count in sorted(sums.items(), key=lambda one: (-one[1], one[0]))}
