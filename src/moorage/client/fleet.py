"""Machines and operations: what belongs to no namespace."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moorage.client.session import INTERVAL_S, Session, fleet_path

if TYPE_CHECKING:
    from moorage.client.watching import Outcome

Json = dict[str, Any]
Items = list[Json]


class AsyncMachines:
    """`client.machines`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> Items:
        """All that joined."""
        return await self._session.all(fleet_path("machines"))

    async def get(self, name: str) -> Json:
        """One machine."""
        answer: Json = await self._session.get(fleet_path("machines", name))
        return answer

    async def history(self, name: str) -> Items:
        """Every change of it, oldest first."""
        return await self._session.all(fleet_path("machines", name, "history"))

    async def cordon(self, name: str, *, why: str, key: str | None = None) -> Json:
        """Give it no new work. `why` is shown to all who ask."""
        answer: Json = await self._session.change(
            "POST", fleet_path("machines", name, "cordon"), body={"why": why}, key=key
        )
        return answer

    async def uncordon(self, name: str, *, key: str | None = None) -> Json:
        """Give it work again."""
        answer: Json = await self._session.change("POST", fleet_path("machines", name, "uncordon"), key=key)
        return answer

    async def drain(
        self,
        name: str,
        *,
        grace: str | float | None = None,
        until: float | None = None,
        dry_run: bool = False,
        key: str | None = None,
    ) -> Json:
        """Empty it: runs are queued again, models replaced elsewhere. `uncordon` ends it.

        Args:
            name: of the machine.
            grace: how long models there may wait for their replacements (`15m`, or seconds), or
            until: the time up to which they may, seconds since the epoch.
            dry_run: only tell what would move.
            key: idempotency key.
        """
        body = {k: v for k, v in (("grace", grace), ("until", until)) if v is not None}
        path = fleet_path("machines", name, "drain")
        answer: Json = await self._session.change("POST", path, body=body, key=key, dry_run="true" if dry_run else None)
        return answer

    async def remove(self, name: str, *, dry_run: bool = False, key: str | None = None) -> Json:
        """Take it out of the fleet; its agent stops all it holds and exits. `dry_run` only tells what runs there."""
        answer: Json = await self._session.change(
            "DELETE", fleet_path("machines", name), key=key, dry_run="true" if dry_run else None
        )
        return answer

    async def cache(self, name: str) -> Json:
        """The models that it keeps: {path, limit_bytes, free_bytes, models: [{source, state, size, done, …}]}."""
        answer: Json = await self._session.get(fleet_path("machines", name, "cache"))
        return answer

    async def prefetch(self, name: str, source: str, *, pin: bool = False) -> Json:
        """Have a model (`hf://ORG/NAME@REVISION`) there before it is needed; begun when this returns, as `cache` says.

        Args:
            name: of the machine.
            source: of the model.
            pin: it stays until it is unpinned.
        """
        return await self._change_cache(name, "prefetch", source, pin=pin)

    async def pin(self, name: str, source: str) -> Json:
        """Keep a model that is there, whatever else needs room."""
        return await self._change_cache(name, "pin", source)

    async def unpin(self, name: str, source: str) -> Json:
        """Let it go again when there is no room."""
        return await self._change_cache(name, "unpin", source)

    async def evict(self, name: str, source: str) -> Json:
        """Remove a model that nobody uses."""
        return await self._change_cache(name, "evict", source)

    async def wait_cached(
        self,
        name: str,
        source: str,
        *,
        timeout_s: float | None = 3600.0,
        interval_s: float = INTERVAL_S,
        on_status: Callable[[Json], None] | None = None,
    ) -> Json:
        """Wait until a model that was asked for is there; the model as it is then.

        Args:
            name: of the machine.
            source: of the model, as it was asked for.
            timeout_s: None waits for ever.
            interval_s: between two looks.
            on_status: called with the model at each look.

        Raises:
            WaitFailed: it cannot be had.
            WaitTimeout: time is over.
        """
        from moorage.client.caching import CacheWatch, judge_model, models_of, nearest
        from moorage.client.watching import Sight, watch

        async def look(limit_s: float) -> Sight:
            found = await self._session.get(fleet_path("machines", name, "cache"), limit_s=limit_s)
            models = models_of(found, source)
            return Sight(nearest(models), judge_model(found, source))

        def tell(model: Json) -> None:
            if model and on_status is not None:
                on_status(model)

        what = CacheWatch("cached", f"Model {source} on {name}", name, timeout_s, interval_s, tell)
        return (await watch(what, look, self._session.transport)).last

    async def _change_cache(self, name: str, action: str, source: str, **more: bool) -> Json:
        body = {"action": action, "source": source, **more}
        answer: Json = await self._session.change("POST", fleet_path("machines", name, "cache"), body=body)
        return answer

    async def join_token(self, *, key: str | None = None) -> Json:
        """A token with which an agent may join; shown once."""
        answer: Json = await self._session.change("POST", fleet_path("tokens", "join"), key=key)
        return answer


class AsyncOperations:
    """`client.operations`: durable work."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, operation: str) -> Json:
        """One operation."""
        answer: Json = await self._session.get(fleet_path("operations", operation))
        return answer

    async def list(self, *, target: str | None = None, state: str | None = None) -> Items:
        """All of them; `target` is the uid of what they work on."""
        return await self._session.all(fleet_path("operations"), target=target, state=state)

    async def cancel(self, operation: str, *, key: str | None = None) -> Json:
        """Ask it to end without reaching its goal."""
        answer: Json = await self._session.change("POST", fleet_path("operations", operation, "cancel"), key=key)
        return answer

    async def resolve(
        self, operation: str, *, adopt: str | None = None, absent: bool = False, key: str | None = None
    ) -> Json:
        """Say what is there, for an operation that needs attention; it goes on, and the evidence is kept.

        Args:
            operation: its id.
            adopt: the resource that is there and is ours: `MACHINE/pid:N` or `container:ID`.
            absent: nothing of it is there.
        """
        body = {"adopt": adopt} if adopt is not None else {"absent": absent}
        path = fleet_path("operations", operation, "resolve")
        answer: Json = await self._session.change("POST", path, body=body, key=key)
        return answer

    async def wait(
        self,
        operation: str,
        *,
        timeout_s: float | None = 600.0,
        interval_s: float = INTERVAL_S,
        on_status: Callable[[Json], None] | None = None,
    ) -> "Outcome":
        """Wait until it succeeded.

        Raises:
            WaitFailed: it failed, was cancelled or needs a person.
            WaitTimeout: time is over.
        """

        from moorage.client.operation_wait import OperationWatch
        from moorage.client.waiting import judge_operation
        from moorage.client.watching import Sight, watch

        async def look(limit_s: float) -> Sight:
            found = await self._session.get(fleet_path("operations", operation), limit_s=limit_s)
            return Sight(found, judge_operation(found))

        what = OperationWatch("done", f"Operation {operation}", operation, timeout_s, interval_s, on_status)
        return await watch(what, look, self._session.transport)
