"""What people want of this machine's model cache: told what is here, and what became of a wish. Called by the session.

A prefetch is begun and not waited for: how far it is, the next answer says.
"""

import asyncio
from collections.abc import Sequence

from moorage.agent.asked import Asked
from moorage.agent.link import Link, LinkError
from moorage.agent.means import Means
from moorage.agent.models.cache import ModelCache, same_files
from moorage.agent.models.fetching import Fetch
from moorage.agent.models.shelf import Entry, Partial
from moorage.domain.errors import InvalidSpec
from moorage.domain.sources import HubSource, hub_source
from moorage.wire.cache import CacheAnswer, CachedFile, CachedModel, CacheRequest

Refusal = tuple[str, str] | None
"""Code and sentence; None: it was done."""


class CacheDesk:
    """Serves what the control plane asks.

    Args:
        means: the cache and the log of this agent.
        link: where answers go.
    """

    def __init__(self, means: Means, link: Link) -> None:
        self._cache = means.models
        self._log = means.log
        self._link = link
        self.take = Asked(self._serve, means.log).take

    async def _serve(self, request: CacheRequest) -> None:
        answer = await answer_to(self._cache, request)
        try:
            await self._link.cache(request.id, answer)
        except LinkError as cause:
            self._log.info("nobody took the answer about the model cache", why=str(cause))


async def answer_to(cache: ModelCache, request: CacheRequest) -> CacheAnswer:
    """Do it, and say what is here then."""
    refusal: Refusal = None
    if request.action != "list":
        try:
            source = hub_source(request.source)
        except InvalidSpec as cause:
            refusal = ("invalid_source", cause.message)
        else:
            refusal = await _do(cache, request, source)
    told = await _told(cache)
    return told if refusal is None else told.model_copy(update={"code": refusal[0], "refused": refusal[1]})


async def _do(cache: ModelCache, request: CacheRequest, source: HubSource | None) -> Refusal:
    if source is None:
        return "invalid_source", f"{request.source} is a path: only what comes from a hub is cached"
    if request.action == "prefetch":
        cache.prefetch(source, pin=request.pin)
        return None
    entries = cache.meant(source)
    if len(entries) > 1:
        which = ", ".join(sorted(str(e.source) for e in entries))
        return "model_ambiguous", f"{source} may be any of {len(entries)} models here: {which}"
    if not entries:
        dropped = request.action == "evict" and await cache.drop(source)
        return None if dropped else ("model_absent", f"{source} is not in the cache of this machine")
    for entry in entries:
        if request.action != "evict":
            await cache.pin(entry, pinned=request.action == "pin")
        elif (why := await cache.evict(entry)) is not None:
            return ("model_pinned" if why == "pinned" else "model_in_use"), f"{entry.source} is {why}"
    return None


async def _told(cache: ModelCache) -> CacheAnswer:
    users = await asyncio.to_thread(cache.users)
    partials = await cache.partials()
    total, free = await asyncio.to_thread(cache.room.of_disk)
    models = [_entry(entry, users.get(entry.key, ())) for entry in cache.entries]
    models += [_partial(partial, cache.fetches.get(partial.key)) for partial in partials]
    models += [CachedModel(source=str(source), state="failed", error=why) for source, why in cache.failed]
    coming = [p.source for p in partials if p.key in cache.fetches]
    models += [_looked_up(s) for s in cache.ordered if not any(same_files(s, other) for other in coming)]
    return CacheAnswer(
        path=str(cache.room.path),
        limit_bytes=cache.room.limit_bytes,
        disk_bytes=total,
        free_bytes=free,
        models=tuple(models),
    )


def _entry(entry: Entry, users: Sequence[str]) -> CachedModel:
    return CachedModel(
        source=str(entry.source),
        state="cached",
        names=entry.names,
        commit=entry.source.revision,
        size=entry.size,
        done=entry.size,
        files=tuple(CachedFile.model_validate(file) for file in entry.files),
        path=str(entry.path),
        fetched_at=entry.fetched_at,
        used_at=entry.used_at,
        pinned=entry.pinned,
        restricted=entry.restricted,
        used_by=tuple(sorted(users)),
    )


def _partial(partial: Partial, fetch: Fetch | None) -> CachedModel:
    known = CachedModel(
        source=str(partial.source),
        state="partial",
        commit=partial.source.revision,
        done=partial.size,
        pinned=partial.pin,
    )
    if fetch is None:
        return known
    far = fetch.progress
    news = {"state": "fetching", "size": far.total, "done": far.done, "rate": far.rate, "error": far.trouble}
    return known.model_copy(update=news)


def _looked_up(source: HubSource) -> CachedModel:
    """Ordered, and nothing of it is here yet: what it means is being looked up."""
    return CachedModel(source=str(source), state="fetching")
