"""Protocols between rooms, one to a few methods each; every real implementation and every shipped fake passes the
same contract suite in `tests/contract/`.

Who implements what: `Store` by `moorage.store`; `WorkerHost` by `moorage.runners.process` (podman and docker
later) and used by `moorage.agent`; `Clock` by `moorage.clock`. Decisions never see a port: they get values.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from moorage.domain.changes import Change, Committed, HistoryRow
from moorage.domain.errors import MoorageError
from moorage.domain.nouns import Noun
from moorage.domain.sources import HubSource
from moorage.domain.usage import UsageRow, UsedOn

N = TypeVar("N", bound=Noun)


class Clock(Protocol):
    """Time as an argument of the composition."""

    def now(self) -> float:
        """Seconds since the epoch (UTC)."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never steps; for durations and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long on this clock."""
        ...


class ModelSources(Protocol):
    """Hubs that models come from, as the control plane asks them."""

    async def commit_of(self, source: HubSource, token: str | None) -> str:
        """The commit that a source without one means now.

        Args:
            token: of the hub; None: what this machine itself has.

        Raises:
            NotFound: its repository is there and has no such revision.
            Unavailable: it cannot be told here.
        """
        ...


class Lease(Protocol):
    """A held lease; `generation` goes into the `Fence` of every commit made under it."""

    name: str
    owner: str
    generation: int
    expires_at: float


class Store(Protocol):
    """Rows, history, keys and leases, in SQLite or PostgreSQL with the same meaning."""

    async def get(self, kind: type[N], uid: str) -> N | None:
        """The row as last committed, or None."""
        ...

    async def find(
        self,
        kind: type[N],
        *,
        limit: int | None = None,
        after: str | None = None,
        order: str = "uid",
        **equals: Any,
    ) -> list[N]:
        """Rows whose indexed columns equal the given values, in order of `order` (a leading `-` reverses).

        A value that is a tuple, list, set or frozenset means "one of". Indexed columns: uid, namespace, name, the
        state field, deployment, revision, replica, run, machine, target (where the noun has them).
        """
        ...

    async def commit(self, change: Change) -> Committed:
        """Write all of it or nothing; returns after it is on disk.

        Raises:
            StaleVersion: a row has moved on, or a GPU is already held, or a machine's limit or the quota of the
                namespace in which something is placed would be exceeded.
            KeyReused: the key belongs to another intent.
            Fenced: the fence's lease passed on.
            IllegalTransition: a step is not in the table.
            Conflict: a live object of that kind, namespace and name exists already.
            QuotaExceeded: a run, deployment or replica more than the namespace may have.
        """
        ...

    async def commit_each(self, changes: Sequence[Change]) -> list[Committed | MoorageError]:
        """Each of these changes as by `commit`, in their order; many cost a fraction of as many commits.

        All or nothing holds for each change: one that is refused fails alone, and its error is its answer.
        """
        ...

    async def history(
        self,
        *,
        uid: str | None = None,
        root: str | None = None,
        namespace: str | None = None,
        after: str | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[HistoryRow]:
        """History rows, oldest first, that follow cursor `after`.

        A row that committed late is never skipped: a cursor is given out only for rows before which nothing can
        appear any more.

        Raises:
            Gone: the cursor was pruned or belongs to another store.
        """
        ...

    def follow(self, after: str | None = None) -> AsyncIterator[Sequence[HistoryRow]]:
        """Batches of history rows as they are committed (by anyone), from `after` (None: from now)."""
        ...

    async def cursor(self) -> str:
        """The newest safe cursor."""
        ...

    async def acquire(self, name: str, owner: str, ttl_s: float) -> Lease | None:
        """Take a lease that is free, expired or ours (a new holder raises the generation), else None."""
        ...

    async def lease(self, name: str) -> Lease | None:
        """Who holds a lease and until when, as last written; None: nobody."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give it up (a no-op when it passed on)."""
        ...

    async def holdings(self, machine: str | None = None) -> list[Mapping[str, Any]]:
        """Live holdings: {machine, worker, epoch, gpus, cpu_milli, memory_bytes, namespace, models (of the GPUs)}."""
        ...

    async def tombstones(self, kind: type[Noun], namespace: str, name: str | None = None) -> list[Mapping[str, Any]]:
        """Deleted objects: {uid, kind, namespace, name, digest, state, reason, actor, at}."""
        ...

    async def secret(self, name: str) -> str | None:
        """A small piece of server state kept beside the rows (token hashes); see `put_secret`."""
        ...

    async def put_secret(self, name: str, value: str) -> None:
        """Keep it, replacing what was there."""
        ...

    async def swap_secret(self, name: str, before: str | None, after: str | None) -> bool:
        """Replace `before` by `after` (None: nothing there); False, and nothing written, when it is another now."""
        ...

    async def secrets(self, prefix: str) -> Mapping[str, str]:
        """Name → value of all whose name begins so, in order of their names."""
        ...

    async def close(self) -> None:
        """Finish what is queued and close."""
        ...


class UsageRows(Protocol):
    """What clients used with their keys; implemented by the store."""

    async def keep_usage(self, rows: Sequence[UsageRow]) -> None:
        """Write sums; of each the larger one stays, so that the same again, or an older one, changes nothing.

        Returns after they are on disk.
        """
        ...

    async def usage(self, namespace: str, first: str, last: str, *, key: str | None = None) -> list[UsedOn]:
        """By key, day and endpoint, over all gateways.

        Args:
            first, last: days (`2026-01-31`), both included.
            key: uid of the one key that is meant; None: all of the namespace.
        """
        ...

    async def prune_usage(self, before: str) -> int:
        """Delete what was used on days before this one; how many rows went."""
        ...
