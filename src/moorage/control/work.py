"""What each machine should run now, told by long-poll: its whole set, with a version that rises when it changes.

Level-triggered: an agent that missed ten changes gets the eleventh state. Versions start at the time of this process,
in milliseconds, so that they never repeat across restarts of the control plane.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from moorage.control.logrelay import LogRelay
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Machine, Run, Worker
from moorage.domain.states import ACTIVE_WORKER, MachineState, WorkerState
from moorage.ports import Clock, Store
from moorage.wire.agent import Assignment, Launch, LaunchMount, Live, Ready, Stop, Work

ASSIGNED = (WorkerState.PENDING, *sorted(ACTIVE_WORKER), WorkerState.STOPPING)
LAUNCH, READY, LIVE = Launch(), Ready(), Live()
"""Where a spec does not say."""

ANSWERED = frozenset({MachineState.READY, MachineState.NOT_READY})


class WorkBoard:
    """The desired sets of all machines.

    Args:
        store: where rows are.
        clock: where versions start.
        relay: questions for log lines that travel with the work.
    """

    def __init__(self, store: Store, clock: Clock, relay: LogRelay) -> None:
        self._store = store
        self._relay = relay
        self._base = int(clock.now() * 1000)
        self._versions: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        relay.on_change = self.bump_soon

    def bump_soon(self, machine: str) -> None:
        """The machine's set, or a question to it, changed; ends its long-poll."""
        self._versions[machine] = self._version(machine) + 1
        task = asyncio.create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _version(self, machine: str) -> int:
        return self._versions.get(machine, self._base)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def work(self, machine: str, incarnation: str, after: int, wait_s: float) -> Work | None:
        """The machine's set, or None when it is still `after` when `wait_s` seconds are over.

        Raises:
            Conflict: the machine is unknown, or its incarnation is not the one that joined last (join again).
        """
        if self._version(machine) == after:
            try:
                async with asyncio.timeout(wait_s), self._changed:
                    await self._changed.wait_for(lambda: self._version(machine) != after)
            except TimeoutError:
                return None
        version = self._version(machine)
        row = await self._store.get(Machine, machine)
        if row is None or row.state is MachineState.REMOVED:
            return Work(version=version, removed=True)
        if row.incarnation != incarnation or row.state not in ANSWERED:
            raise Conflict(
                f"machine {row.name} must join and reconcile before it gets work",
                code="rejoin",
                retryable=True,
                target=f"Machine {row.name}",
            )
        logs = self._relay.pending(machine)
        self._relay.sent(q.id for q in logs)
        return Work(version=version, assignments=await self._assignments(machine), logs=logs)

    async def _assignments(self, machine: str) -> tuple[Assignment, ...]:
        workers = await self._store.find(Worker, machine=machine, state=ASSIGNED)
        if not workers:
            return ()
        runs = {r.uid: r for r in await self._store.find(Run, uid=sorted({w.run for w in workers}))}
        owners = sorted({r.deployment for r in runs.values() if r.deployment})
        deployments = {d.uid: d for d in await self._store.find(Deployment, uid=owners)} if owners else {}
        return tuple(
            assignment(w, runs[w.run], deployments.get(runs[w.run].deployment or ""))
            for w in sorted(workers, key=lambda w: w.uid)
            if w.run in runs
        )


def assignment(worker: Worker, run: Run, deployment: Deployment | None) -> Assignment:
    """One worker as its machine is told it."""
    group = _group(run, worker.group)
    launch = _launch(worker, group, deployment.name if deployment else run.name)
    asked: Mapping[str, Any] | None = worker.stop
    stop = None
    if worker.state is WorkerState.STOPPING and asked is not None:
        stop = Stop(
            cause=str(asked["cause"]),
            text=asked.get("text"),
            signal=launch.stop_signal,
            grace_s=float(asked.get("grace_s", launch.stop_grace_s)),
        )
    return Assignment(
        worker=worker.uid,
        run=worker.run,
        namespace=worker.namespace,
        deployment=run.deployment,
        owner=run.deployment or run.uid,
        digest=_digest(group),
        epoch=worker.epoch,
        attempt=worker.attempt,
        desired="stop" if stop else "run",
        launch=launch,
        stop=stop,
    )


def _group(run: Run, name: str) -> Mapping[str, Any]:
    groups: tuple[Mapping[str, Any], ...] = tuple(run.spec.get("groups") or ({},))
    return next((g for g in groups if g.get("name") == name), groups[0])


def _digest(group: Mapping[str, Any]) -> str:
    """Of what is run, alike for each attempt of it."""
    return hashlib.sha256(json.dumps(group, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _launch(worker: Worker, group: Mapping[str, Any], name: str) -> Launch:
    runtime: Mapping[str, Any] = group.get("runtime") or {}
    model: Mapping[str, Any] = group.get("model") or {}
    stop: Mapping[str, Any] = runtime.get("stop") or {}
    request: Mapping[str, Any] = worker.request or {}
    defaults = LAUNCH
    return Launch(
        runner=runtime.get("runner", "process"),
        command=tuple(runtime.get("command") or ()),
        image=runtime.get("image"),
        pull=runtime.get("pull", defaults.pull),
        mounts=tuple(LaunchMount.model_validate(m) for m in runtime.get("mounts") or ()),
        memory_bytes=int(request.get("memory_bytes") or 0),
        cpu_milli=int(request.get("cpu_milli") or 0),
        env=dict(runtime.get("env") or {}),
        workdir=runtime.get("workdir"),
        source=model.get("source"),
        name=name,
        rank=worker.rank,
        world_size=int(group.get("count") or 1),
        gpus=worker.gpus,
        port=True,
        ready=_ready(runtime, model),
        live=_live(runtime),
        stop_signal=stop.get("signal", defaults.stop_signal),
        stop_grace_s=stop.get("grace", defaults.stop_grace_s),
    )


def _ready(runtime: Mapping[str, Any], model: Mapping[str, Any]) -> Ready | None:
    asked: Mapping[str, Any] | None = runtime.get("ready")
    if asked is None:
        return None
    defaults = READY
    return Ready(
        path=asked.get("path", defaults.path),
        timeout_s=asked.get("timeout", defaults.timeout_s),
        stall_s=asked.get("stall", defaults.stall_s),
        interval_s=asked.get("interval", defaults.interval_s),
        warmup_s=asked.get("warmup", defaults.warmup_s),
        model=model.get("id"),
        aliases=tuple(model.get("aliases") or ()),
        request=asked.get("request"),
    )


def _live(runtime: Mapping[str, Any]) -> Live | None:
    asked: Mapping[str, Any] | None = runtime.get("live")
    if asked is None:
        return None
    defaults = LIVE
    return Live(
        path=asked.get("path", defaults.path),
        interval_s=asked.get("interval", defaults.interval_s),
        failures=asked.get("failures", defaults.failures),
        fail_after_s=asked.get("fail_after", defaults.fail_after_s),
    )
