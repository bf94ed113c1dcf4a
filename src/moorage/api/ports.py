"""What the API needs from the control rooms, as protocols; `moorage.control.admit`, `.observe` and `.explain` satisfy
them, and the tests' recording fakes do.
"""

from typing import Any, Protocol

from moorage.control.credentials import Principal
from moorage.wire.agent import (
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Joined,
    Reconcile,
    ReconcileAnswer,
    Report,
    ReportAnswer,
    Work,
)
from moorage.wire.routing import GatewayReport, GatewayReportAnswer, RoutingTable

Answer = dict[str, Any]


class RunCommands(Protocol):
    """What a person may order about runs; as `Commands`. NAME may be a uid, or means the newest run that has it."""

    async def apply(
        self, ns: str, name: str, document: dict[str, Any], *, actor: str, key: str | None, create_only: bool
    ) -> Answer:
        """Submit it: {run, changed, warnings}; of one that is over also {message, remedy}."""
        ...

    async def plan(self, ns: str, name: str, document: dict[str, Any]) -> Answer:
        """What submitting it would do: a Plan object."""
        ...

    async def cancel(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """End it: {run, changed}."""
        ...

    async def restart(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """Start it again: {run, changed}; of a finished run that is a new one."""
        ...

    async def delete(self, ns: str, name: str, *, actor: str, key: str | None) -> Answer:
        """Remove it, ended first: {run, changed}."""
        ...

    async def delete_dry_run(self, ns: str, name: str) -> Answer:
        """What a delete would touch: a DryRun object."""
        ...

    async def stop_worker(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """Stop one worker: {worker, run, state, changed}."""
        ...


class Commands(Protocol):
    """What a person may order. `actor` is who, `key` the idempotency key; both go into the commit.

    Each raises subclasses of `MoorageError`: `InvalidSpec`, `NotFound`, `Conflict`, `QuotaExceeded`, `Unavailable`.
    """

    @property
    def runs(self) -> RunCommands:
        """Orders about runs."""
        ...

    async def apply_deployment(
        self,
        ns: str,
        name: str,
        document: dict[str, Any],
        *,
        actor: str,
        key: str | None,
        create_only: bool,
    ) -> Answer:
        """Make it so: {deployment, revision, operation | null, changed}."""
        ...

    async def plan_deployment(self, ns: str, name: str, document: dict[str, Any]) -> Answer:
        """What an apply would do: a Plan object."""
        ...

    async def stop_deployment(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """Stop it for good: {deployment, operation}."""
        ...

    async def delete_deployment(self, ns: str, name: str, *, actor: str, key: str | None, keep: bool = False) -> Answer:
        """Remove it: {deployment, operation}; with `keep`, its adopted server runs on."""
        ...

    async def delete_dry_run(self, ns: str, name: str) -> Answer:
        """What a delete would touch: a DryRun object."""
        ...

    async def promote_deployment(
        self, ns: str, name: str, *, actor: str, key: str | None, text: str | None, revision: str | None
    ) -> Answer:
        """The candidate takes over: {deployment, revision, operation | null, changed}."""
        ...

    async def reject_deployment(
        self, ns: str, name: str, *, actor: str, key: str | None, text: str | None, revision: str | None
    ) -> Answer:
        """The candidate ends: as `promote_deployment`."""
        ...

    async def rollback_deployment(
        self, ns: str, name: str, *, actor: str, key: str | None, text: str | None, to: str | None
    ) -> Answer:
        """Back to a revision that served before: as `promote_deployment`."""
        ...

    async def pause_deployment(self, ns: str, name: str, *, actor: str, key: str | None) -> Answer:
        """Scale it to zero until the next request."""
        ...

    async def wake_deployment(self, ns: str, name: str, *, actor: str, key: str | None) -> Answer:
        """Bring a paused one back."""
        ...

    async def scale_deployment(
        self, ns: str, name: str, *, min: int | None, max: int | None, actor: str, key: str | None
    ) -> Answer:
        """Change the replica limits."""
        ...

    async def cancel_operation(self, uid: str, *, actor: str, key: str | None) -> Answer:
        """Ask an operation to end."""
        ...

    async def resolve_operation(
        self, uid: str, *, adopt: str | None, absent: bool, actor: str, key: str | None
    ) -> Answer:
        """A person's word on what is there, for an operation that needs attention: {operation, how}."""
        ...

    async def cordon(self, machine: str, *, why: str, actor: str, key: str | None) -> Answer:
        """Place nothing new on a machine."""
        ...

    async def uncordon(self, machine: str, *, actor: str, key: str | None) -> Answer:
        """Use it again."""
        ...

    async def drain_machine(
        self, machine: str, *, grace_s: float | None, until: float | None, actor: str, key: str | None
    ) -> Answer:
        """Empty a machine, within so many seconds or by a time (seconds since the epoch)."""
        ...

    async def remove_machine(self, machine: str, *, actor: str, key: str | None) -> Answer:
        """Take a machine out of the cluster."""
        ...

    async def machine_dry_run(self, machine: str, *, removed: bool) -> Answer:
        """What a drain, or a removal, would touch: a DryRun object."""
        ...


class Machines(Protocol):
    """What agents say and ask."""

    async def join(self, message: Join, principal: Principal) -> Joined:
        """An agent starts. Where it came with a join token and the answer has no credential, the API issues one."""
        ...

    async def reconcile(self, message: Reconcile) -> ReconcileAnswer:
        """What it still runs; which of it to keep."""
        ...

    async def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        """It lives, and these of its workers do."""
        ...

    async def report(self, message: Report) -> ReportAnswer:
        """What it saw, in order."""
        ...

    async def work(self, machine: str, incarnation: str, after: int, wait_s: float) -> Work | None:
        """What it should run once that differs from version `after`, or None when `wait_s` seconds passed first."""
        ...


class Gateways(Protocol):
    """What gateways say and ask."""

    async def table(self, incarnation: str | None, after: int, wait_s: float, access: int = 0) -> RoutingTable | None:
        """The table once it is newer than (`incarnation`, `after`), or None when `wait_s` seconds passed first.

        Args:
            access: number of the rules that the gateway has of this incarnation: the table leaves them out.
        """
        ...

    async def report(self, message: GatewayReport) -> GatewayReportAnswer:
        """Confirms a generation, renews the lease, says what is in flight and held."""
        ...


class Explain(Protocol):
    """Why a thing is as it is."""

    async def why(self, ns: str, name: str) -> Answer:
        """A Why object of a deployment or run."""
        ...
