"""What the runner tells of its models: values only, safe to keep."""

from dataclasses import dataclass
from typing import Any

from moorage.domain.reasons import Reason
from moorage.domain.states import RunnerState


@dataclass(frozen=True, slots=True)
class Failure:
    """How a server ended, or why it was ended, when it should not have.

    Args:
        reason: the code with its sentence.
        at: seconds since the epoch.
        exit_code: as a shell shows it; None where nothing says how it ended.
        signal: the signal that ended it, or 0.
        oom: whether the kernel killed it for memory.
        log: its last 50 lines, 16 KiB at most.
    """

    reason: Reason
    at: float
    exit_code: int | None = None
    signal: int = 0
    oom: bool = False
    log: str = ""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as it is now.

    Args:
        since: seconds since the epoch at which it got into its state.
        reason: of the last change, or of what it waits for.
        address: `http://HOST:PORT` once it has a port.
        pid: first process of its server while there is one.
        restarts: restarts since the last start, stop or reset.
        next_restart_at: seconds since the epoch, while a restart waits for its delay.
        pulled: bytes of its image done and known so far, while it is pulled.
    """

    name: str
    state: RunnerState
    since: float
    reason: Reason
    runner: str
    port: int | None = None
    address: str | None = None
    pid: int | None = None
    restarts: int = 0
    restart_limit: int = 0
    next_restart_at: float | None = None
    last_failure: Failure | None = None
    pulled: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change of one model's state.

    Args:
        seq: rises by one with each change of this runner.
        trigger: of the row in the table of transitions.
        at: seconds since the epoch.
        missed: changes that this follower was too slow for and that were dropped before this one.
    """

    seq: int
    model: str
    source: RunnerState
    target: RunnerState
    trigger: str
    reason: Reason
    at: float
    restarts: int = 0
    next_restart_at: float | None = None
    missed: int = 0

    def to_wire(self) -> dict[str, Any]:
        """As JSON."""
        out = {name: getattr(self, name) for name in self.__slots__}
        return {**out, "source": str(self.source), "target": str(self.target), "reason": self.reason.to_wire()}
