"""What a person's command makes of a run: submit, cancel, restart, delete; and the stop of one worker. Pure.

A command writes intent and nothing else; the running recipe does the rest. Each writes a row of history, since that is
what wakes the recipe. Called by `control/admit_runs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.decision import Draft, Ids, Outcome
from moorage.decide.endpoints import refuse_name_of_endpoint
from moorage.decide.running.creating import LIVE_FIELDS, create_run, with_workers
from moorage.domain.changes import Release
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Endpoint, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, TERMINAL_RUN, StopCause, WorkerState


@dataclass(frozen=True, slots=True)
class RunIntent:
    """A checked spec.

    Args:
        spec: the normalised document, with `digest`.
        warnings: what is accepted and will not go as might be hoped.
    """

    namespace: str
    name: str
    spec: Mapping[str, Any]
    digest: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownRun:
    """What bears that name already.

    Args:
        run: the newest run of the name, finished ones included, or None.
        deployment: the deployment of the name, or None.
        endpoint: the endpoint that people made under the name, or None.
    """

    run: Run | None = None
    deployment: Deployment | None = None
    endpoint: Endpoint | None = None


def submit(intent: RunIntent, known: KnownRun, ids: Ids, now: float, *, actor: str, create_only: bool) -> Outcome:
    """Make the run, or do nothing where it is there already.

    Raises:
        Conflict: a deployment or an endpoint has the name; a live run of another spec has it, or one that is being
            deleted; or there is one and `create_only`.
    """
    if known.deployment is not None:
        raise _name_taken("Deployment", known.deployment, intent.name)
    refuse_name_of_endpoint(known.endpoint, intent.name)
    run = known.run
    if run is not None and create_only:
        raise Conflict(
            f"run {_shown(run)} exists already ({run.state})",
            code="exists",
            remedy="submit it under another name, or without asking that there be none",
            target=_target(run),
        )
    if run is None or (is_over(run) and run.digest != intent.digest) or (is_over(run) and run.deleting):
        return _create(intent, ids, now, actor)
    if run.deleting:
        raise Conflict(
            f"run {_shown(run)} is being deleted",
            code="deleting",
            remedy=f"wait until it is gone (moor wait {run.name} --for stopped), then submit it again",
            target=_target(run),
        )
    if run.digest != intent.digest:
        raise Conflict(
            f"run {_shown(run)} is {run.state} and was submitted with another spec",
            code="run_live",
            remedy=f"end it first (moor cancel {run.name}), or submit this one under another name",
            target=_target(run),
        )
    return _again(run, intent, now, actor)


def _create(intent: RunIntent, ids: Ids, now: float, actor: str) -> Outcome:
    draft = Draft((), now, actor)
    run = create_run(draft, ids.new("Run"), intent.namespace, intent.name, intent.spec)
    with_workers(draft, run, ids)
    return Outcome(draft.decision().change, _answer(run, changed=True, warnings=list(intent.warnings)))


def _again(run: Run, intent: RunIntent, now: float, actor: str) -> Outcome:
    """The same spec: only labels and annotations may differ, and they change at once."""
    draft = Draft((run,), now, actor)
    fields = {name: dict(intent.spec.get(name) or {}) for name in sorted(LIVE_FIELDS)}
    changed = [name for name, value in fields.items() if dict(getattr(run, name)) != value]
    if changed:
        draft.set(run, **{name: fields[name] for name in changed}, spec=dict(intent.spec))
        draft.note(run, reason("run.changed", fields=", ".join(changed), by=actor))
    answer = _answer(run, changed=bool(changed), warnings=list(intent.warnings))
    if is_over(run):
        answer |= _finished(run)
    return Outcome(draft.decision().change, answer)


def cancel(run: Run, now: float, *, actor: str, text: str | None) -> Outcome:
    """Ask a run to end. Of a finished one, or one that was asked before, a no-op that says so."""
    if is_over(run):
        return Outcome(None, {**_answer(run, changed=False), **_finished(run)})
    if dict(run.cancel or {}).get("cause") == StopCause.USER:
        return Outcome(None, _answer(run, changed=False))
    draft = Draft((run,), now, actor)
    _ask_to_end(draft, run, actor, text)
    return Outcome(draft.decision().change, _answer(run, changed=True))


def _ask_to_end(draft: Draft, run: Run, actor: str, text: str | None) -> None:
    draft.set(run, cancel={"cause": str(StopCause.USER), "text": text, "at": draft.now})
    draft.note(run, reason("run.cancel_requested", text=text, by=actor))


def restart(run: Run, known: KnownRun, ids: Ids, now: float, *, actor: str, text: str | None) -> Outcome:
    """Start every worker of a live run again; submit a finished one once more.

    Args:
        known: what bears its name now.

    Raises:
        Conflict: it is being cancelled or deleted, it only makes runs by a schedule, or its name was taken meanwhile.
    """
    if is_over(run):
        return _restart_finished(run, known, ids, Draft((), now, actor))
    if run.cancel is not None or run.deleting:
        word = "deleted" if run.deleting else "cancelled"
        raise Conflict(
            f"run {_shown(run)} is being {word}",
            code="run_ending",
            remedy=f"wait until it has ended (moor wait {run.name} --for stopped), then restart it",
            target=_target(run),
        )
    if run.schedule is not None:
        raise Conflict(
            f"run {_shown(run)} makes runs by its schedule and has no workers of its own",
            code="run_scheduled",
            remedy=f"restart one of the runs that it made (moor ls: {run.name}-…)",
            target=_target(run),
        )
    if run.restarting is not None:
        return Outcome(None, _answer(run, changed=False))
    draft = Draft((run,), now, actor)
    asked = {"cause": "requested", "worker": None, "text": text, "since": now, "restart_at": None}
    draft.set(run, restarting=asked)
    draft.note(run, reason("restart.requested", text=text))
    return Outcome(draft.decision().change, _answer(run, changed=True))


def _restart_finished(run: Run, known: KnownRun, ids: Ids, draft: Draft) -> Outcome:
    if known.deployment is not None:
        raise _name_taken("Deployment", known.deployment, run.name)
    refuse_name_of_endpoint(known.endpoint, run.name)
    if known.run is not None and not is_over(known.run):
        raise _name_taken("Run", known.run, run.name)
    made = create_run(draft, ids.new("Run"), run.namespace, run.name, run.spec, restarted_from=run.uid)
    with_workers(draft, made, ids)
    return Outcome(draft.decision().change, _answer(made, changed=True))


def delete(run: Run, now: float, *, actor: str) -> Outcome:
    """Mark a run for deletion, and end it first where it lives; the recipe removes it once nothing of it is left."""
    if run.deleting:
        return Outcome(None, _answer(run, changed=False))
    draft = Draft((run,), now, actor)
    draft.set(run, deleting=True, deleted_by=actor)
    draft.note(run, reason("run.deleting", by=actor))
    if not is_over(run) and run.cancel is None:
        _ask_to_end(draft, run, actor, "deleted")
    return Outcome(draft.decision().change, _answer(run, changed=True))


def stop_worker(worker: Worker, run: Run, now: float, *, actor: str, text: str | None) -> Outcome:
    """Stop one worker: what no machine has is Cancelled at once, the rest when its machine saw it gone.

    A stop that is under way for another cause becomes a person's; one that ended is left as it is.
    """
    answer = {"worker": worker.uid, "run": run.uid, "state": str(worker.state), "changed": False}
    cause = StopCause.USER if text else StopCause.DEFAULT
    why = reason("stop.user", text=text, by=actor) if text else reason("stop.default")
    stop = {"cause": str(cause), "text": text, "since": now, "by": actor}
    draft = Draft((worker,), now, actor)
    if (worker.state is WorkerState.PENDING and not worker.handed_over) or worker.state is WorkerState.DOWN:
        if worker.machine is not None and not worker.handed_over:
            draft.write(Release(worker.uid, worker.epoch))
        draft.step(worker, WorkerState.CANCELLED, "cancelled", why, stop=stop, ended_at=now, ready=False, waits=None)
    elif worker.state is WorkerState.PENDING or worker.state in ACTIVE_WORKER:
        draft.step(worker, WorkerState.STOPPING, "stop_requested", why, stop=stop, ready=False)
    elif worker.state in (WorkerState.STOPPING, WorkerState.CANCELLED) and not is_over(run):
        _take_stop_over(draft, worker, stop)
        draft.note(worker, why)
    if not draft.decision().change:
        return Outcome(None, answer)
    return Outcome(draft.decision().change, {**answer, "state": str(draft.row(worker).state), "changed": True})


def _take_stop_over(draft: Draft, worker: Worker, stop: Mapping[str, Any]) -> None:
    """A stop for a cause after which the worker would be queued again becomes one for good."""
    before = dict(worker.stop or {})
    kept = {key: before[key] for key in ("since", "grace_s", "unkillable_since") if key in before}
    draft.set(worker, stop={**stop, **kept})


def refuse_name_of_run(live: Run | None, name: str) -> None:
    """A deployment may not take the name of a run that lives.

    Raises:
        Conflict: there is one.
    """
    if live is not None:
        raise _name_taken("Run", live, name)


def is_over(run: Run) -> bool:
    """Whether the run has ended, so that its name is free."""
    return run.state in TERMINAL_RUN


def _finished(run: Run) -> dict[str, Any]:
    """What an answer about a run that is over says beside."""
    return {
        "message": f"run {_shown(run)} is {run.state} already; nothing was changed",
        "remedy": f"run it once more with `moor restart {run.name}`",
    }


def _answer(run: Run, *, changed: bool, warnings: list[str] | None = None) -> dict[str, Any]:
    named = {"kind": "Run", "id": run.uid, "name": run.name, "namespace": run.namespace, "state": str(run.state)}
    answer: dict[str, Any] = {"run": {**named, "restarted_from": run.restarted_from}, "changed": changed}
    return {**answer, "warnings": warnings} if warnings is not None else answer


def _name_taken(kind: str, row: Run | Deployment, name: str) -> Conflict:
    return Conflict(
        f"{kind.lower()} {row.namespace}/{row.name} has the name {name} already",
        code="name_taken",
        remedy="deployments, runs and endpoints share their names: choose another one, or end that one first",
        target=f"{kind} {row.namespace}/{row.name}",
    )


def _shown(run: Run) -> str:
    return f"{run.namespace}/{run.name}"


def _target(run: Run) -> str:
    return f"Run {_shown(run)}"
