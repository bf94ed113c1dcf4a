"""What a decision about one run sees: the run, its workers, and what it may have to wait for. Plain values.

Only runs of their own come here; the run behind a replica is followed by `decide/serving`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.domain.nouns import Machine, Noun, Run, Worker


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Input of one decision.

    Args:
        now: seconds since the epoch.
        run: the run.
        workers: all of its workers, any order; none before they were planned.
        machines: machines by uid: those its workers are, or were last, on; every ready one while it is planned.
        after: by name, the newest run of each name in `after` of its spec; a name without one is absent.
        made: of a run with a schedule: the runs that it made, newest first.
        refused: why the store refused the run that its schedule was to make, if it did: its namespace has enough.
        held: by machine, the indexes of its GPUs that are held; while the run is planned on the fleet.
    """

    now: float
    run: Run
    workers: tuple[Worker, ...] = ()
    machines: Mapping[str, Machine] = field(default_factory=dict)
    after: Mapping[str, Run] = field(default_factory=dict)
    made: tuple[Run, ...] = ()
    held: Mapping[str, frozenset[int]] = field(default_factory=dict)
    refused: str | None = None

    def rows(self) -> tuple[Noun, ...]:
        """Rows that the decision may change."""
        return (self.run, *self.workers)
