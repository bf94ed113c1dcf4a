"""`/metrics`, `/livez`, `/readyz`.

Counts by state are taken when scraped, and only if anything changed since the last scrape: an idle system is read
once. Each app has a registry of its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from moorage.api.deps import ApiDeps, Deps
from moorage.api.errors import error_response, json_response
from moorage.domain.errors import MoorageError, Unavailable
from moorage.domain.nouns import KINDS
from moorage.ports import Store

router = APIRouter(tags=["operation"])

Seen = Counter[tuple[str, int]]


class StateCounts:
    """Objects by kind and state.

    Args:
        store: where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cursor: str | None = None
        self._counts: Counter[tuple[str, str]] = Counter()

    async def read(self) -> Mapping[tuple[str, str], int]:
        """Counts now."""
        cursor = await self._store.cursor()
        if cursor != self._cursor:
            counts: Counter[tuple[str, str]] = Counter()
            for kind in KINDS.values():
                counts.update((kind.kind, row.state_word) for row in await self._store.find(kind))
            self._counts, self._cursor = counts, cursor
        return self._counts


class _Snapshot:
    """A collector of what was read already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, deps: Deps) -> Response:
    """Prometheus text."""
    counts = await cast(StateCounts, request.app.state.counts).read()
    gpus = _gpus(await deps.reader.accounts.by_state())
    families = [
        _objects(counts),
        gpus,
        _answers(cast(Seen, request.app.state.seen)),
        *_stats(deps.stats()),
        *_gauges(deps.gauges()),
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(families))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/livez")
async def livez() -> Response:
    """The process answers."""
    return json_response({"live": True})


@router.get("/readyz")
async def readyz(deps: Deps) -> Response:
    """The store answers and the loops run."""
    why = await _not_ready(deps)
    if why is not None:
        return error_response(Unavailable(f"the server is not ready: {why}", retry_after_s=1.0, code="not_ready"))
    return json_response({"ready": True})


async def _not_ready(deps: ApiDeps) -> str | None:
    if deps.closing.is_set():
        return "it is stopping"
    try:
        await deps.store.cursor()
    except MoorageError as error:
        return error.message
    return deps.readiness()


def _objects(counts: Mapping[tuple[str, str], int]) -> Metric:
    family = GaugeMetricFamily("moorage_objects", "Objects by kind and state.", labels=("kind", "state"))
    for (kind, state), count in sorted(counts.items()):
        family.add_metric((kind, state), count)
    return family


def _gpus(counts: Mapping[tuple[str, str], int]) -> Metric:
    family = GaugeMetricFamily(
        "moorage_gpus",
        "GPUs by machine and by what they are taken by: free, held, reserved, faulty, foreign.",
        labels=("machine", "state"),
    )
    for (machine, state), count in sorted(counts.items()):
        family.add_metric((machine, state), count)
    return family


def _answers(seen: Seen) -> Metric:
    family = CounterMetricFamily(
        "moorage_api_answers", "HTTP answers by method and status.", labels=("method", "status")
    )
    for (method, status), count in sorted(seen.items()):
        family.add_metric((method, str(status)), count)
    return family


def _gauges(gauges: Mapping[str, float]) -> list[Metric]:
    return [
        GaugeMetricFamily(f"moorage_{name}", f"{name.replace('_', ' ')} now.", value=value)
        for name, value in sorted(gauges.items())
    ]


def _stats(stats: Mapping[str, float]) -> list[Metric]:
    return [
        CounterMetricFamily(f"moorage_{name}", f"{name.replace('_', ' ')} since the server started.", value=value)
        for name, value in sorted(stats.items())
    ]
