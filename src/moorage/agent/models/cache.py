"""The cache itself: who needs a model is given it, fetched once for all who wait, with room made where there is none.

A source without a commit is looked up first; while its hub is away, what it meant last is used. An entry is in use
while a worker that is held here has its key in the file `model` of its folder, written before the worker is told where
the model is, so that nothing is removed under anybody, also after the agent was started again. Made by `agent`; called
by `providing` and `desk`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from moorage.agent.given import Refused
from moorage.agent.models import words
from moorage.agent.models.fetching import PAUSE_MAX_S, PAUSE_S, Fetch, Job, Progress
from moorage.agent.models.room import Demand, Room
from moorage.agent.models.shelf import Entry, Partial, Shelf, key_of
from moorage.domain.sources import HubSource
from moorage.ports import Clock
from moorage.sources.hub import Hub, SourceError
from moorage.sources.messages import Plan

MARK = "model"
"""File in a worker's folder: the key of the entry that it uses."""
STALL_S = 300.0
"""Of a prefetch, which no worker's own limit holds for."""


@dataclass(frozen=True, slots=True)
class Want:
    """Who wants a model.

    Args:
        namespace: whose right to read it counts; None: the machine's own.
        token: of the hub; None: what the machine itself has.
        stall_s: nothing may come for so long.
        folder: of the worker, in which its use is written down; None: nobody uses it yet.
    """

    namespace: str | None = None
    token: str | None = None
    stall_s: float = STALL_S
    folder: Path | None = None


Tell = Callable[[HubSource, Progress], None]


class ModelCache:
    """The models of one machine.

    Args:
        shelf: where they lie.
        hub: where they come from.
        clock, log: of the agent.
        limit_bytes: for all of them together; None: as much as the disk has room for.
    """

    def __init__(
        self, shelf: Shelf, hub: Hub, clock: Clock, log: structlog.stdlib.BoundLogger, *, limit_bytes: int | None = None
    ) -> None:
        self.holders: Callable[[], Iterable[tuple[str, Path]]] = lambda: ()
        """the workers that are held now, each with its folder"""
        self.room = Room(shelf, limit_bytes)
        self._shelf = shelf
        self._hub = hub
        self._clock = clock
        self._log = log
        self._entries: dict[str, Entry] = {}
        self._fetches: dict[str, Fetch] = {}
        self._tasks: dict[str, asyncio.Task[Entry]] = {}
        self._ordered: dict[str, asyncio.Task[None]] = {}
        self._orders: dict[str, HubSource] = {}
        self._failed: dict[str, tuple[HubSource, str]] = {}
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Look at what is here, and go on with what people had ordered."""
        self._entries = await asyncio.to_thread(self._shelf.load)
        for partial in await asyncio.to_thread(self._shelf.partials):
            if partial.ordered:
                self.prefetch(partial.source, pin=partial.pin)

    async def close(self) -> None:
        """Let go; what came of unfinished ones stays."""
        tasks = [*self._ordered.values(), *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What is here

    @property
    def entries(self) -> Sequence[Entry]:
        """Whole ones."""
        return tuple(self._entries.values())

    @property
    def fetches(self) -> Mapping[str, Fetch]:
        """Those on their way now, by key."""
        return self._fetches

    @property
    def ordered(self) -> Sequence[HubSource]:
        """Prefetches that are under way."""
        return tuple(self._orders.values())

    @property
    def failed(self) -> Sequence[tuple[HubSource, str]]:
        """Prefetches that came to nothing since this agent started, and why."""
        return tuple(self._failed.values())

    async def partials(self) -> Sequence[Partial]:
        """Those of which something is here, with and without a fetch."""
        return await asyncio.to_thread(self._shelf.partials)

    def users(self) -> dict[str, list[str]]:
        """Workers that use an entry, by its key."""
        found: dict[str, list[str]] = {}
        for worker, folder in self.holders():
            try:
                found.setdefault((folder / MARK).read_text().strip(), []).append(worker)
            except FileNotFoundError:
                continue
        return found

    def known(self, source: HubSource) -> list[Entry]:
        """Entries of exactly this source: with its commit, or the one that it meant last."""
        name = str(source)
        return [e for e in self._entries.values() if name == str(e.source) or name in e.names]

    def meant(self, source: HubSource) -> list[Entry]:
        """Entries that a person may mean by a source: of a branch, also one that was looked up by somebody else."""
        return self.known(source) or [e for e in self._entries.values() if same_files(source, e.source)]

    # Having one

    async def obtain(self, source: HubSource, want: Want, tell: Tell) -> Entry:
        """Have it here, whole.

        Args:
            source: what.
            want: for whom.
            tell: how far its fetch is, whenever more has come.

        Raises:
            Refused: it cannot be had; with the worker's reason.
        """
        pinned = await self._pinned(source, want, tell)
        while True:
            entry = await self._whole(pinned) or await self._fetched(pinned, want, tell)
            if entry is None:
                continue
            await self._may_read(entry, want, tell)
            if await self._use(entry, source, want):
                return self._entries[entry.key]

    async def _pinned(self, source: HubSource, want: Want, tell: Tell) -> HubSource:
        """With its commit. While the hub is away: as it was last."""
        if source.pinned:
            return source
        last = max(self.known(source), key=lambda e: e.used_at, default=None)
        try:
            plan = await self._asked(source, want, tell, patient=last is None)
        except SourceError as cause:
            if cause.kind != "busy" or last is None:
                raise words.refused(source, cause) from cause
            self._log.warning("a model is used as it was last", model=str(source), why=cause.message)
            return last.source
        return source.at(plan.commit)

    async def _asked(
        self, source: HubSource, want: Want, tell: Tell, *, check: bool = False, patient: bool = True
    ) -> Plan:
        """What the hub says; one that is away or busy is asked again for as long as a fetch may stand still.

        Raises:
            SourceError: it stays so, or did for too long.
        """
        until, pause_s = self._clock.monotonic() + want.stall_s, PAUSE_S
        while True:
            try:
                return await self._hub.resolve(source, want.token, check=check)
            except SourceError as cause:
                left_s = until - self._clock.monotonic()
                if cause.kind != "busy" or not patient or left_s <= 0:
                    raise
                tell(source, Progress(trouble=cause.message))
                await self._clock.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _whole(self, source: HubSource) -> Entry | None:
        async with self._changing:
            entry = self._entries.get(key_of(source))
            if entry is None or await asyncio.to_thread(entry.sound):
                return entry
            self._log.warning("a model here is not whole any more: fetching what is missing", model=str(source))
            del self._entries[entry.key]
            await asyncio.to_thread(self._shelf.reopen, entry)
            return None

    async def _fetched(self, source: HubSource, want: Want, tell: Tell) -> Entry | None:
        """Wait for its fetch, begun if nobody has yet. None: begin anew; it failed for another's token, or was left."""
        key = key_of(source)
        if key not in self._tasks:
            self._begin(source, want.token)
        fetch, task = self._fetches[key], self._tasks[key]
        fetch.waiting += 1
        try:
            await self._wait(fetch, task, want, tell)
            return None if task.cancelled() else task.result()
        except SourceError as cause:
            if cause.kind == "denied" and fetch.token != want.token:
                return None
            raise words.refused(source, cause) from cause
        finally:
            fetch.waiting -= 1
            if fetch.waiting == 0 and not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _wait(self, fetch: Fetch, task: "asyncio.Task[Entry]", want: Want, tell: Tell) -> None:
        since = self._clock.monotonic()
        tell(fetch.source, fetch.progress)
        while not task.done():
            left_s = max(fetch.moved_at, since) + want.stall_s - self._clock.monotonic()
            if left_s <= 0:
                raise words.stalled(fetch.source, want.stall_s, fetch.last_error)
            limit = asyncio.ensure_future(self._clock.sleep(left_s))
            news = asyncio.ensure_future(fetch.news())
            try:
                await asyncio.wait({task, news, limit}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                limit.cancel()
                news.cancel()
            tell(fetch.source, fetch.progress)

    def _begin(self, source: HubSource, token: str | None, *, ordered: bool = False, pin: bool = False) -> None:
        key = key_of(source)
        folder = self._shelf.begin(source, ordered=ordered, pin=pin)

        async def planned(plan: Plan) -> None:
            await self._make_room(key, plan.size)

        job = Job(source, token, str(folder), planned)
        self._fetches[key] = Fetch(self._hub, job, self._clock, self._log)
        self._tasks[key] = asyncio.create_task(self._fetch(key))
        self._tasks[key].add_done_callback(lambda task: task.cancelled() or task.exception())  # each waiter sees it

    async def _fetch(self, key: str) -> Entry:
        fetch = self._fetches[key]
        try:
            files = await fetch.files()
            restricted = fetch.plan is not None and fetch.plan.restricted
            now = self._clock.now()
            finish = asyncio.to_thread(self._shelf.finish, fetch.source, files, now=now, restricted=restricted)
            finishing = asyncio.ensure_future(finish)
            try:
                await asyncio.shield(finishing)
            finally:  # also where everybody has left meanwhile: what lies on disk is known
                self._entries[key] = entry = await finishing
            self._log.info("model fetched", model=str(fetch.source), bytes=entry.size)
            return entry
        except SourceError:
            await asyncio.to_thread(self._shelf.drop_partial, key)
            raise
        except OSError as cause:
            raise SourceError("disk", str(cause)) from cause
        finally:
            del self._fetches[key], self._tasks[key]

    async def _may_read(self, entry: Entry, want: Want, tell: Tell) -> None:
        """What is gated or private at its hub is given to nobody who may not read it there."""
        if not entry.restricted or want.namespace is None or want.namespace in entry.opened_for:
            return
        try:
            await self._asked(entry.source, want, tell, check=True)
        except SourceError as cause:
            raise words.refused(entry.source, cause) from cause
        async with self._changing:
            entry = self._entries.get(entry.key, entry)
            opened = (*entry.opened_for, want.namespace)
            await self._note(entry, opened_for=opened)

    async def _use(self, entry: Entry, source: HubSource, want: Want) -> bool:
        """Write down that it is used. False: it was removed meanwhile."""
        async with self._changing:
            current = self._entries.get(entry.key)
            if current is None:
                return False
            if want.folder is not None:
                await asyncio.to_thread(_mark, want.folder, entry.key)
            names = current.names if source.pinned or str(source) in current.names else (*current.names, str(source))
            await self._note(current, used_at=self._clock.now(), names=names)
            if not source.pinned:
                await self._unname(source, current.key)
            return True

    async def _unname(self, source: HubSource, key: str) -> None:
        """What it meant before, it means no more."""
        for entry in self.known(source):
            if entry.key != key:
                await self._note(entry, names=tuple(n for n in entry.names if n != str(source)))

    async def _note(self, entry: Entry, **changed: object) -> None:
        self._entries[entry.key] = await asyncio.to_thread(self._shelf.note, entry, **changed)

    # Room

    async def _make_room(self, key: str, size: int) -> None:
        async with self._changing:
            busy = frozenset(self._tasks)
            demand = Demand(key, size, self.entries, frozenset(self.users()), busy)
            gone = await asyncio.to_thread(self.room.make, demand)
            for entry in gone:
                self._entries.pop(entry.key, None)
                self._log.info("a model went to make room", model=str(entry.source), bytes=entry.size)

    # What people ask

    def prefetch(self, source: HubSource, *, pin: bool) -> None:
        """Have it here in time; goes on beside everything else, and again after a restart of the agent."""
        name = str(source)
        if name not in self._ordered:
            self._failed.pop(name, None)
            self._orders[name] = source
            self._ordered[name] = asyncio.create_task(self._prefetch(source, pin))

    async def _prefetch(self, source: HubSource, pin: bool) -> None:
        try:
            pinned = await self._pinned(source, Want(), _to_nobody)
            key = key_of(pinned)
            if key in self._tasks:
                await asyncio.to_thread(self._shelf.begin, pinned, ordered=True, pin=pin)
            elif key not in self._entries:
                self._begin(pinned, None, ordered=True, pin=pin)
            entry = await self.obtain(source, Want(), _to_nobody)
            if pin:
                await self.pin(entry, pinned=True)
        except Refused as cause:
            self._failed[str(source)] = (source, cause.message)
            self._log.warning("a model was not fetched", model=str(source), why=cause.message)
        finally:
            self._ordered.pop(str(source), None)
            self._orders.pop(str(source), None)

    async def pin(self, entry: Entry, *, pinned: bool) -> None:
        """Keep it, or let it go when there is no room."""
        async with self._changing:
            current = self._entries.get(entry.key)
            if current is not None:
                await self._note(current, pinned=pinned)

    async def evict(self, entry: Entry) -> str | None:
        """Remove it. Answers why it was not: it is used, or pinned."""
        async with self._changing:
            current, users = self._entries.get(entry.key), self.users().get(entry.key)
            if current is None:
                return None
            if users:
                return f"used by {', '.join(sorted(users))}"
            if current.pinned:
                return "pinned"
            del self._entries[entry.key]
            await asyncio.to_thread(self._shelf.remove, (current.folder,))
            return None

    async def drop(self, source: HubSource) -> bool:
        """End the fetch of a source that nobody but people ordered, and remove what came of it."""
        dropped = self._failed.pop(str(source), None) is not None
        task = self._ordered.get(str(source))
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for partial in await self.partials():
            if same_files(source, partial.source) and partial.key not in self._tasks:
                await asyncio.to_thread(self._shelf.drop_partial, partial.key)
                dropped = True
        return dropped


def _to_nobody(source: HubSource, progress: Progress) -> None:
    """Whoever ordered a prefetch looks for itself."""


def same_files(source: HubSource, pinned: HubSource) -> bool:
    """Whether the second may be the first with its commit."""
    return source == pinned or (not source.pinned and source.at("") == pinned.at(""))


def _mark(folder: Path, key: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = folder / f"{MARK}.new"
    new.write_text(key + "\n")
    new.replace(folder / MARK)
