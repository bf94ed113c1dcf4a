"""What a run's spec asks of its decisions, read once: policies, numbers in seconds, which workers are needed.

A replica's run has none of these keys: it gets the defaults, and `replica` says that nothing of it is started again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.domain.nouns import Run, Worker


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """What one group asks.

    Args:
        order: its place among the groups.
        restart_policy: OnFailure | Always | Never.
        depends_on: (group, running | healthy).
        stop_grace_s: seconds between the signal and the kill; None: what its machine uses.
    """

    order: int = 0
    restart_policy: str = "OnFailure"
    depends_on: tuple[tuple[str, str], ...] = ()
    stop_grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What the run asks.

    Args:
        gang: its needed workers start and run together.
        min_available: so many of them are needed; None: all.
        leader: GROUP-RANK.
        restarts_whole: a failure starts every worker again (`on_failure: RestartJob`).
        array_fails_first: the first element that fails for good fails the run; else the run waits for all.
        after: (run, condition).
    """

    replica: bool = False
    service: bool = False
    gang: bool = False
    min_available: int | None = None
    leader: str | None = None
    restarts_whole: bool = False
    backoff_s: float = 10.0
    backoff_max_s: float = 300.0
    budget: int = 10
    reset_after_s: float = 600.0
    time_limit_s: float | None = None
    barrier_timeout_s: float = 900.0
    max_queue_time_s: float | None = None
    ttl_after_finished_s: float | None = 604800.0
    complete_with: str | None = None
    array: bool = False
    array_fails_first: bool = False
    max_parallel: int | None = None
    after: tuple[tuple[str, str], ...] = ()
    groups: Mapping[str, GroupPolicy] = field(default_factory=dict)

    @staticmethod
    def of(run: Run) -> "Policy":
        """The policy of a run, from its normalised spec."""
        spec = run.spec
        gang = spec.get("gang") or False
        return Policy(
            replica=run.replica is not None,
            service=spec.get("lifetime") == "service",
            gang=bool(gang),
            min_available=int(gang["min_available"]) if isinstance(gang, Mapping) else None,
            leader=spec.get("leader"),
            restarts_whole=(spec.get("on_failure") or ("RestartJob" if gang else "RestartTask")) == "RestartJob",
            barrier_timeout_s=_seconds(spec, "barrier_timeout", 900.0),
            time_limit_s=_seconds_or_none(spec, "time_limit"),
            max_queue_time_s=_seconds_or_none(spec, "max_queue_time"),
            ttl_after_finished_s=_seconds(spec, "ttl_after_finished", 604800.0),
            complete_with=spec.get("complete_with"),
            after=tuple((a["run"], a.get("condition") or "completed") for a in spec.get("after") or ()),
            groups=_groups(spec.get("groups") or ()),
            **_restart(spec.get("restart") or {}),
            **_array(spec.get("array")),
        )

    def group_of(self, worker: Worker) -> GroupPolicy:
        """What the worker's group asks."""
        return self.groups.get(worker.group, _DEFAULT)

    def restart_policy(self, worker: Worker) -> str:
        """The worker's restart policy. Exit 0 in the group that completes the run is never started again."""
        asked = self.group_of(worker).restart_policy
        return "OnFailure" if asked == "Always" and worker.group == self.complete_with else asked

    def ordered(self, workers: Iterable[Worker]) -> list[Worker]:
        """Workers by group, then rank."""
        order = {name: group.order for name, group in self.groups.items()}
        return sorted(workers, key=lambda w: (order.get(w.group, 0), w.group, w.rank))

    def needed(self, workers: Sequence[Worker]) -> list[Worker]:
        """Those that the run cannot do without, in the order given: all, or the first `min_available` with the leader.

        Args:
            workers: all of the run's, by group and rank.

        decided: which ones are needed never changes, so that a member above the minimum never becomes a needed one.
        """
        if self.min_available is None or self.min_available >= len(workers):
            return list(workers)
        first = sorted(workers, key=lambda w: not self.leads(w))[: self.min_available]
        chosen = {w.uid for w in first}
        return [w for w in workers if w.uid in chosen]

    def leads(self, worker: Worker) -> bool:
        """Whether it is the leader of the gang; by default the first worker."""
        if self.leader is not None:
            return f"{worker.group}-{worker.rank}" == self.leader
        return self.group_of(worker).order == 0 and worker.rank == 0

    def backoff(self, n: int) -> float:
        """Seconds before the n-th restart in a row: doubling from the first, up to the cap."""
        return float(min(self.backoff_s * 2.0 ** min(max(n, 1) - 1, 30), self.backoff_max_s))


_DEFAULT = GroupPolicy()


def _seconds(spec: Mapping[str, Any], name: str, default: float) -> float:
    value = spec.get(name)
    return default if value is None else float(value)


def _seconds_or_none(spec: Mapping[str, Any], name: str) -> float | None:
    value = spec.get(name)
    return None if value is None else float(value)


def _restart(asked: Mapping[str, Any]) -> dict[str, Any]:
    budget = asked.get("budget")
    return {
        "backoff_s": _seconds(asked, "backoff", 10.0),
        "backoff_max_s": _seconds(asked, "backoff_max", 300.0),
        "budget": 10 if budget is None else int(budget),
        "reset_after_s": _seconds(asked, "reset_after", 600.0),
    }


def _array(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    if asked is None:
        return {}
    return {
        "array": True,
        "array_fails_first": asked.get("fail") == "first",
        "max_parallel": asked.get("max_parallel"),
    }


def _groups(asked: Sequence[Mapping[str, Any]]) -> dict[str, GroupPolicy]:
    out: dict[str, GroupPolicy] = {}
    for order, group in enumerate(asked):
        grace = ((group.get("runtime") or {}).get("stop") or {}).get("grace")
        out[str(group.get("name") or "worker")] = GroupPolicy(
            order=order,
            restart_policy=str(group.get("restart_policy") or "OnFailure"),
            depends_on=tuple((d["group"], d.get("condition") or "running") for d in group.get("depends_on") or ()),
            stop_grace_s=None if grace is None else float(grace),
        )
    return out
