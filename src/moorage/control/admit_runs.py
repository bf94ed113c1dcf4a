"""Commands from people about runs and their workers: load, let `decide/running/commands` decide, carry out.

Also what a submission says beforehand: plans, warnings, and the dry run of a delete. Called by the API's routes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.control.carrying import Answer, Carrier
from moorage.control.submitted import checked_spec
from moorage.decide.decision import Ids, Outcome
from moorage.decide.endpoints import refuse_name_of_endpoint
from moorage.decide.running import commands
from moorage.decide.running.commands import KnownRun, RunIntent
from moorage.decide.running.creating import run_digest
from moorage.decide.running.splitting import warnings
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.nouns import Deployment, Endpoint, Machine, Run, Worker
from moorage.ports import Clock, Store

FLEET_KEPT_S = 5.0


class RunAdmission:
    """The commands of the API about runs.

    Args:
        store, clock, ids: outside.
        carry: makes them durable.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids, carry: Carrier) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._carry = carry
        self._machines: Sequence[Machine] = ()
        self._fleet_until = float("-inf")

    async def apply(
        self, ns: str, name: str, document: Mapping[str, Any], *, actor: str, key: str | None, create_only: bool
    ) -> Answer:
        """Submit it: {run, changed, warnings}; of one that is over also {message, remedy}."""
        intent = await self._intent(ns, name, document)

        async def decide() -> Outcome:
            known = await self._known(ns, name)
            return commands.submit(intent, known, self._ids, self._clock.now(), actor=actor, create_only=create_only)

        return await self._carry(ns, key, {"submit": name, "spec": intent.spec}, decide)

    async def plan(self, ns: str, name: str, document: Mapping[str, Any]) -> Answer:
        """What submitting it would do: a Plan object."""
        intent = await self._intent(ns, name, document)
        known = await self._known(ns, name)
        return plan(intent, known, self._ids, self._clock.now())

    async def cancel(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """End it: {run, changed}."""

        async def decide() -> Outcome:
            return commands.cancel(await self._must_know(ns, name), self._clock.now(), actor=actor, text=text)

        return await self._carry(ns, key, {"cancel run": name}, decide)

    async def restart(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """Start it again: {run, changed}; of a finished run that is a new one."""

        async def decide() -> Outcome:
            run = await self._must_know(ns, name)
            known = await self._known(ns, run.name)
            return commands.restart(run, known, self._ids, self._clock.now(), actor=actor, text=text)

        return await self._carry(ns, key, {"restart run": name}, decide)

    async def delete(self, ns: str, name: str, *, actor: str, key: str | None) -> Answer:
        """Remove it, ended first: {run, changed}."""

        async def decide() -> Outcome:
            return commands.delete(await self._must_know(ns, name), self._clock.now(), actor=actor)

        return await self._carry(ns, key, {"delete run": name}, decide)

    async def delete_dry_run(self, ns: str, name: str) -> Answer:
        """What a delete would touch: a DryRun object."""
        run = await self._must_know(ns, name)
        workers = await self._store.find(Worker, run=run.uid)
        uids = sorted({w.machine for w in workers if w.machine})
        machines = await self._store.find(Machine, uid=uids) if uids else []
        return dry_run(run, workers, machines)

    async def stop_worker(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """Stop one worker: {worker, run, state, changed}."""

        async def decide() -> Outcome:
            worker = await self._worker(ns, name)
            run = await self._store.get(Run, worker.run)
            if run is None:
                raise _missing("Worker", ns, name)
            return commands.stop_worker(worker, run, self._clock.now(), actor=actor, text=text)

        return await self._carry(ns, key, {"stop worker": name}, decide)

    async def refuse_name(self, ns: str, name: str) -> None:
        """See that no live run, and no endpoint, bears the name that a deployment is to have.

        Raises:
            Conflict: one does.
        """
        runs = await self._named(ns, name)
        commands.refuse_name_of_run(next((r for r in runs if not commands.is_over(r)), None), name)
        refuse_name_of_endpoint(await self._endpoint(ns, name), name)

    async def _intent(self, ns: str, name: str, document: Mapping[str, Any]) -> RunIntent:
        spec = checked_spec("Run", ns, name, document, verb="submit")
        said = warnings(Run(uid="", namespace=ns, name=name, spec=spec), await self._fleet())
        return RunIntent(ns, name, spec, run_digest(spec), (*said, *await self._waits_for_none(ns, spec)))

    async def _waits_for_none(self, ns: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Runs that it is to start after, and that are not there."""
        names = [str(after["run"]) for after in spec.get("after") or ()]
        missing = [name for name in names if not await self._named(ns, name)]
        return tuple(f"after names the run {name}, and there is none of that name yet" for name in missing)

    async def _fleet(self) -> Sequence[Machine]:
        """Every machine, as read a moment ago at most: it is for warnings only, and submissions come in bursts."""
        now = self._clock.monotonic()
        if now >= self._fleet_until:
            self._machines = await self._store.find(Machine)
            self._fleet_until = now + FLEET_KEPT_S
        return self._machines

    async def _known(self, ns: str, name: str) -> KnownRun:
        runs = await self._named(ns, name)
        deployments = await self._store.find(Deployment, namespace=ns, name=name)
        return KnownRun(_newest(runs), deployments[-1] if deployments else None, await self._endpoint(ns, name))

    async def _endpoint(self, ns: str, name: str) -> Endpoint | None:
        """The endpoint that people made under that name."""
        return next(iter(await self._store.find(Endpoint, namespace=ns, name=name)), None)

    async def _named(self, ns: str, name: str) -> list[Run]:
        """Runs of their own that have, or had, that name."""
        return await self._store.find(Run, namespace=ns, name=name, deployment=None)

    async def _must_know(self, ns: str, name: str) -> Run:
        """The newest run of that name, or the one of that uid."""
        found = _newest(await self._named(ns, name)) or await self._store.get(Run, name)
        if found is None or found.namespace != ns:
            raise _missing("Run", ns, name)
        if found.deployment is not None:
            raise Conflict(
                f"run {ns}/{found.name} belongs to a deployment, which starts another one in its place",
                code="run_of_deployment",
                remedy="stop, scale or delete the deployment instead",
                target=f"Run {ns}/{found.name}",
            )
        return found

    async def _worker(self, ns: str, name: str) -> Worker:
        found = await self._store.get(Worker, name)
        if found is None:
            named = await self._store.find(Worker, namespace=ns, name=name)
            found = max(named, key=lambda w: (w.created_at, w.uid), default=None)
        if found is None or found.namespace != ns:
            raise _missing("Worker", ns, name)
        return found


def plan(intent: RunIntent, known: KnownRun, ids: Ids, now: float) -> Answer:
    """What submitting would do; a refusal is told as a warning."""
    warnings = list(intent.warnings)
    actions: list[Answer] = []
    uid = known.run.uid if known.run else None
    try:
        outcome = commands.submit(intent, known, ids, now, actor="plan", create_only=False)
    except Conflict as refused:
        warnings.append(f"it would be refused: {refused.message}. {refused.remedy or ''}".strip())
    else:
        actions = _actions(intent, outcome, uid)
        if "remedy" in outcome.answer:
            warnings.append(f"{outcome.answer['message']}; {outcome.answer['remedy']}")
    return {
        "kind": "Plan",
        "changes": [],
        "actions": [{"order": n + 1, **a} for n, a in enumerate(actions)],
        "warnings": warnings,
        "touches": [{"kind": "Run", "name": intent.name, "id": uid}],
        "refers": [{"kind": "Run", "name": a["run"], "what_happens": "waited for"} for a in intent.spec["after"]],
    }


def _actions(intent: RunIntent, outcome: Outcome, uid: str | None) -> list[Answer]:
    if outcome.change is None:
        return []
    if outcome.answer["run"]["id"] == uid:
        return [{"kind": "change", "summary": "change labels and annotations at once"}]
    if intent.spec.get("schedule"):
        cron = intent.spec["schedule"]["cron"]
        return [{"kind": "create", "summary": f"create run {intent.name}, which makes a run at each time of {cron!r}"}]
    groups = ", ".join(_group(g, intent.spec.get("array")) for g in intent.spec["groups"])
    return [
        {"kind": "create", "summary": f"create run {intent.name} ({intent.digest[:19]})"},
        {"kind": "start", "summary": f"start {groups}"},
    ]


def _group(group: Mapping[str, Any], array: Mapping[str, Any] | None) -> str:
    if array is not None:
        return f"{array['count']} elements of {group['name']}"
    if group.get("total_gpus") is not None:
        return f"workers of {group['name']} with {group['total_gpus']} GPUs in all"
    count = group["count"]
    return f"{count} worker{'s' if count != 1 else ''} of {group['name']}"


def dry_run(run: Run, workers: Sequence[Worker], machines: Sequence[Machine]) -> Answer:
    """Everything that a delete of the run touches."""
    touched = [*({"kind": r.kind, "name": r.name, "id": r.uid} for r in (run, *workers, *machines))]
    return {
        "kind": "DryRun",
        "changes": [],
        "actions": [
            {"order": 1, "kind": "stop", "summary": f"end its processes on {len(machines)} machines"},
            {"order": 2, "kind": "prove", "summary": "wait until every machine confirmed that they are gone"},
            {"order": 3, "kind": "tombstone", "summary": "keep a tombstone and the history; free the name"},
        ],
        "warnings": [],
        "touches": touched,
        "refers": [],
    }


def _newest(runs: Sequence[Run]) -> Run | None:
    return max(runs, key=lambda r: (r.created_at, r.uid), default=None)


def _missing(kind: str, ns: str, name: str) -> NotFound:
    return NotFound(
        f"there is no {kind.lower()} {ns}/{name}",
        remedy="see what there is with `moor ls`; deleted ones with `moor ls --deleted`",
        target=f"{kind} {ns}/{name}",
    )
