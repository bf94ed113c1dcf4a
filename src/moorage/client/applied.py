"""What an apply returned, and waiting for exactly that."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moorage.client.session import INTERVAL_S

if TYPE_CHECKING:
    from moorage.client.deployments import AsyncDeployments
    from moorage.client.waiting import Bound
    from moorage.client.watching import Outcome

Json = dict[str, Any]


@dataclass(frozen=True)
class AsyncApplied:
    """An accepted apply.

    Attributes:
        deployment: its kind, name, namespace and id at least.
        revision: uid of the revision it means: the new one, or the one that has this digest already.
        operation: uid of the operation that carries it out; None where there is nothing to do.
        changed: whether anything changed.
        object: the answer as it came.
    """

    deployment: Json
    revision: str | None
    operation: str | None
    changed: bool
    object: Json = field(repr=False)
    _deployments: "AsyncDeployments" = field(repr=False)

    @property
    def bound(self) -> "Bound":
        """What a wait for this belongs to."""
        from moorage.client.waiting import Bound

        return Bound(self.revision, self.operation, self.deployment.get("id"))

    async def wait(
        self,
        goal: str = "ready",
        *,
        timeout_s: float | None = 600.0,
        interval_s: float = INTERVAL_S,
        on_status: Callable[[Json], None] | None = None,
    ) -> "Outcome":
        """Wait for a goal of this revision; never satisfied, nor failed, by an older one.

        Args:
            goal: accepted, ready, live, promoted or stopped.
            timeout_s: None waits for ever.
            interval_s: seconds between two reads.
            on_status: called with each deployment object read.

        Raises:
            WaitFailed: it will not be reached; carries the last object, the reason, exit code and log.
            WaitTimeout: time is over.
        """
        return await self._deployments.wait(
            str(self.deployment["name"]),
            goal,
            namespace=self.deployment.get("namespace"),
            bound=self.bound,
            timeout_s=timeout_s,
            interval_s=interval_s,
            on_status=on_status,
        )

    async def wait_for_active(self, timeout: float | None = 600.0) -> "Outcome":
        """Wait until it is ready. `timeout` in seconds. Errors as in `wait`."""
        return await self.wait("ready", timeout_s=timeout)
