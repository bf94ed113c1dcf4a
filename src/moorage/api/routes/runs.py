"""`/namespaces/{ns}/runs…`, `…/workers/…`, `…/replicas/…`: what runs, seen from the run down."""

from fastapi import APIRouter, Response

from moorage.api.deps import Deps, Namespace
from moorage.api.errors import json_response
from moorage.api.queries import After, Deleted, HistoryLimit, Paged
from moorage.control.reading import HISTORY_MAX, missing
from moorage.domain.nouns import Replica, Run, Worker

router = APIRouter(prefix="/namespaces/{ns}", tags=["runs"])


@router.get("/runs")
async def list_runs(ns: Namespace, deps: Deps, page: Paged, deleted: Deleted = False) -> Response:
    """Runs of a namespace, those behind replicas included."""
    if deleted:
        return json_response({"items": await deps.reader.tombstones(Run, ns), "next": None})
    return json_response(await deps.reader.runs(ns, page))


@router.get("/runs/{name}")
async def get_run(ns: Namespace, name: str, deps: Deps, deleted: Deleted = False) -> Response:
    """One run: the newest of that name, or the one of that uid."""
    if not deleted:
        return json_response(await deps.reader.run(ns, name))
    gone = await deps.reader.tombstones(Run, ns, name)
    if not gone:
        raise missing(Run, ns, name)
    return json_response(gone[-1])


@router.get("/runs/{name}/workers")
async def list_workers(ns: Namespace, name: str, deps: Deps) -> Response:
    """Its workers, by group and rank."""
    return json_response({"items": await deps.reader.workers(ns, name), "next": None})


@router.get("/runs/{name}/history")
async def run_history(
    ns: Namespace, name: str, deps: Deps, after: After = None, limit: HistoryLimit = HISTORY_MAX
) -> Response:
    """Everything that happened to it, oldest first."""
    return json_response(await deps.reader.history(Run, ns, name, after=after, limit=limit))


@router.get("/runs/{name}/why")
async def why_run(ns: Namespace, name: str, deps: Deps) -> Response:
    """Why it is, or is not, running."""
    return json_response(await deps.explain.why(ns, name))


@router.get("/workers/{name}")
async def get_worker(ns: Namespace, name: str, deps: Deps) -> Response:
    """One worker, by uid or name."""
    return json_response(await deps.reader.worker(ns, name))


@router.get("/workers/{name}/history")
async def worker_history(
    ns: Namespace, name: str, deps: Deps, after: After = None, limit: HistoryLimit = HISTORY_MAX
) -> Response:
    """Everything that happened to it, oldest first."""
    return json_response(await deps.reader.history(Worker, ns, name, after=after, limit=limit))


@router.get("/replicas/{name}")
async def get_replica(ns: Namespace, name: str, deps: Deps) -> Response:
    """One replica, by uid or name."""
    return json_response(await deps.reader.replica(ns, name))


@router.get("/replicas/{name}/history")
async def replica_history(
    ns: Namespace, name: str, deps: Deps, after: After = None, limit: HistoryLimit = HISTORY_MAX
) -> Response:
    """Everything that happened to it, oldest first."""
    return json_response(await deps.reader.history(Replica, ns, name, after=after, limit=limit))
