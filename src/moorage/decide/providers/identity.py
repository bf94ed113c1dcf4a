"""Who a piece of work is to whatever executes it: the same name for the same intent, whoever asks and how often.

Derived from uids, never from names: a namesake must not adopt what another left (the lifecycle contract §11). Carried
to the machine as tags, in the environment of processes and the labels of containers, with the digest of the intent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.domain.nouns import Run, Worker


@dataclass(frozen=True, slots=True)
class Identity:
    """One intent.

    Args:
        owner: uid of the deployment or run.
        revision: uid of the revision; of a job, the name of the group.
        ordinal: which replica of the deployment; of a job, the rank.
        attempt: rises only once the one before is proven gone.
        member: which worker of a replica that spans machines; 0 else.
    """

    owner: str
    revision: str
    ordinal: int
    attempt: int
    member: int = 0

    @property
    def text(self) -> str:
        """As tags carry it."""
        whole = f"{self.owner}/{self.revision}/{self.ordinal}/{self.attempt}"
        return f"{whole}/{self.member}" if self.member else whole

    @classmethod
    def parse(cls, text: str) -> "Identity | None":
        """Read what `text` made; None for anything else."""
        parts = text.split("/")
        if len(parts) not in (4, 5) or not all(p.isdigit() for p in parts[2:]) or not (parts[0] and parts[1]):
            return None
        numbers = [int(p) for p in parts[2:]]
        return cls(parts[0], parts[1], numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0)


def identity_of(run: Run, worker: Worker) -> Identity:
    """The identity of one worker's work."""
    told: Mapping[str, Any] | None = run.spec.get("replica")
    if run.deployment is not None and told is not None:
        return Identity(
            run.deployment, str(told["revision"]), int(told["ordinal"]), int(told["attempt"]), member=worker.rank
        )
    return Identity(run.deployment or run.uid, worker.group, worker.rank, worker.attempt)
