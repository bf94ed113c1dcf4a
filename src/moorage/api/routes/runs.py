"""`/namespaces/{ns}/runs…`, `…/workers/…`, `…/replicas/…`: what runs, from the run down, and orders about it."""

from typing import Annotated, Any

from fastapi import Body, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from moorage.api.deps import Actor, Deps, Key, Namespace
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.api.queries import After, CreateOnly, Deleted, HistoryLimit, Paged, check_address
from moorage.control.reading import HISTORY_MAX
from moorage.domain.nouns import Replica, Run, Worker

router = under_api("/namespaces/{ns}", tag="runs")

Document = Annotated[dict[str, Any], Body(description="a Run document; see the specs' JSON Schema")]


class WhyBody(BaseModel):
    """Why, in the words of whoever asks for it."""

    model_config = ConfigDict(extra="forbid")
    text: str | None = Field(default=None, max_length=1000)


class StopWorkerBody(BaseModel):
    """Why the worker is stopped, in the words of whoever stops it."""

    model_config = ConfigDict(extra="forbid")
    reason: str | None = Field(default=None, max_length=1000)


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
    return json_response(await deps.reader.tombstone(Run, ns, name))


@router.put("/runs/{name}")
async def submit_run(
    *, ns: Namespace, name: str, document: Document, deps: Deps, actor: Actor, key: Key, create_only: CreateOnly
) -> Response:
    """Submit: {run, changed, warnings}. The same again changes nothing; on a run that is over the answer says so."""
    check_address(document, ns, name)
    answer = await deps.commands.runs.apply(ns, name, document, actor=actor, key=key, create_only=create_only)
    return json_response(answer)


@router.delete("/runs/{name}")
async def delete_run(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, dry_run: Annotated[bool, Query()] = False
) -> Response:
    """Remove it, ended first: {run, changed}; with `dry_run`, what that would touch."""
    if dry_run:
        return json_response(await deps.commands.runs.delete_dry_run(ns, name))
    return json_response(await deps.commands.runs.delete(ns, name, actor=actor, key=key), 202)


@router.post("/runs/{name}/plan")
async def plan_run(ns: Namespace, name: str, document: Document, deps: Deps) -> Response:
    """What submitting this document would do."""
    check_address(document, ns, name)
    return json_response(await deps.commands.runs.plan(ns, name, document))


@router.post("/runs/{name}/cancel")
async def cancel_run(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: WhyBody | None = None
) -> Response:
    """End it: {run, changed}."""
    text = body.text if body else None
    return json_response(await deps.commands.runs.cancel(ns, name, actor=actor, key=key, text=text), 202)


@router.post("/runs/{name}/restart")
async def restart_run(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: WhyBody | None = None
) -> Response:
    """Start it again: {run, changed}; of a run that is over that is a new one."""
    text = body.text if body else None
    return json_response(await deps.commands.runs.restart(ns, name, actor=actor, key=key, text=text), 202)


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


@router.post("/workers/{name}/stop")
async def stop_worker(
    *, ns: Namespace, name: str, deps: Deps, actor: Actor, key: Key, body: StopWorkerBody | None = None
) -> Response:
    """Stop one worker: {worker, run, state, changed}. A needed member of a gang takes the gang with it."""
    text = body.reason if body else None
    return json_response(await deps.commands.runs.stop_worker(ns, name, actor=actor, key=key, text=text), 202)


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
