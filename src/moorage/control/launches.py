"""One worker as its machine is told it: the assignment, made from the rows. Pure; called by `work` only.

What runs is taken from the spec of the worker's run, whether a person submitted it or a replica is behind it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.decide.providers.identity import identity_of
from moorage.domain.nouns import Deployment, Machine, Run, Worker
from moorage.domain.states import WorkerState
from moorage.wire.agent import (
    Assignment,
    Launch,
    LaunchDrive,
    LaunchFile,
    LaunchMount,
    LaunchPort,
    Live,
    Ready,
    Stop,
)

LAUNCH, READY, LIVE = Launch(), Ready(), Live()
"""Where a spec does not say."""

JsonMap = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gang:
    """What the members of a gang are told once its barrier is open.

    Args:
        members: (uid, epoch) of every worker that it was read from.
        leader: host:port at which the leader lets the others meet it.
        hosts: by group, the hosts of its workers in order of rank.
        sizes: by group, how many workers it has.
    """

    members: frozenset[tuple[str, int]]
    leader: str | None
    hosts: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int]


def gang_of(run: Run, workers: Iterable[Worker], machines: Mapping[str, Machine]) -> Gang:
    """What there is to say about all workers of a run together.

    Args:
        workers: all of the run's.
        machines: those they are on, by uid.
    """
    groups: dict[str, list[Worker]] = {}
    for worker in sorted(workers, key=lambda w: (w.group, w.rank)):
        groups.setdefault(worker.group, []).append(worker)
    every = [w for members in groups.values() for w in members]
    leader = next((w for w in every if leads(run, w)), None)
    return Gang(
        members=frozenset((w.uid, w.epoch) for w in every),
        leader=leader.rendezvous if leader else None,
        hosts={name: tuple(_host(w, machines) for w in members) for name, members in groups.items()},
        sizes={name: len(members) for name, members in groups.items()},
    )


def _host(worker: Worker, machines: Mapping[str, Machine]) -> str:
    machine = machines.get(worker.machine or "")
    return machine.host if machine is not None else ""


def leads(run: Run, worker: Worker) -> bool:
    """Whether this worker is the leader of its run's gang."""
    return bool(run.spec.get("leader")) and run.spec["leader"] == f"{worker.group}-{worker.rank}"


def _answers(worker: Worker, run: Run) -> bool:
    """Whether a server of it is asked: of a replica of several workers the leader alone answers."""
    return run.replica is None or not in_gang(run) or leads(run, worker)


def in_gang(run: Run) -> bool:
    """Whether the workers of a run start together."""
    return bool(run.spec.get("gang"))


def needs_others(worker: Worker, run: Run) -> bool:
    """Whether this worker can only be told what to do with the other workers of its run at hand."""
    if in_gang(run) and worker.go and worker.state in BEFORE_START:
        return True
    return group_of(run, worker.group).get("total_gpus") is not None


BEFORE_START = frozenset(
    {WorkerState.PENDING, WorkerState.PREPARING, WorkerState.PULLING, WorkerState.READY_TO_START, WorkerState.STARTING}
)
"""A process that runs has been told who leads and where the others are."""


def assignment(worker: Worker, run: Run, deployment: Deployment | None, gang: Gang | None = None) -> Assignment:
    """One worker as its machine is told it.

    Args:
        deployment: whose replica it is, if it is one's.
        gang: about all workers of the run, where `needs_others` says so.
    """
    group = group_of(run, worker.group)
    size = gang.sizes.get(worker.group, 1) if gang is not None else _size(run, group)
    launch = _launch(worker, run, group, deployment.name if deployment else run.name, size)
    meets = gang is not None and in_gang(run) and worker.go
    stop = _stop(worker, launch)
    return Assignment(
        worker=worker.uid,
        run=worker.run,
        namespace=worker.namespace,
        deployment=run.deployment,
        owner=run.deployment or run.uid,
        digest=digest_of(group),
        identity=identity_of(run, worker).text,
        epoch=worker.epoch,
        attempt=worker.attempt,
        desired="stop" if stop else "run",
        launch=launch,
        stop=stop,
        go=worker.go or not in_gang(run),
        leader=gang.leader if gang is not None and meets else None,
        hosts=gang.hosts.get(worker.group, ()) if gang is not None and meets else (),
    )


def _stop(worker: Worker, launch: Launch) -> Stop | None:
    asked: JsonMap | None = worker.stop
    if worker.state is not WorkerState.STOPPING or asked is None:
        return None
    return Stop(
        cause=str(asked["cause"]),
        text=asked.get("text"),
        signal=launch.stop_signal,
        grace_s=float(asked.get("grace_s", launch.stop_grace_s)),
    )


def group_of(run: Run, name: str) -> JsonMap:
    """The group of a run's spec that has this name; the first one, where none has."""
    groups: Sequence[JsonMap] = tuple(run.spec.get("groups") or ({},))
    return next((g for g in groups if g.get("name") == name), groups[0])


def _size(run: Run, group: JsonMap) -> int:
    array: JsonMap = run.spec.get("array") or {}
    return int(array.get("count") or group.get("count") or 1)


def digest_of(group: JsonMap) -> str:
    """Of what is run, alike for each attempt of it."""
    return hashlib.sha256(json.dumps(group, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _launch(worker: Worker, run: Run, group: JsonMap, name: str, size: int) -> Launch:
    runtime: JsonMap = group.get("runtime") or {}
    model: JsonMap = group.get("model") or {}
    return LAUNCH.model_copy(
        update={
            **_program(worker, runtime, model),
            **_given(run, group, runtime),
            "name": name,
            "rank": worker.rank,
            "world_size": size,
            "port": _wants_port(run, group, runtime),
            "ready": _ready(runtime, model) if _answers(worker, run) else None,
            "live": _live(runtime) if _answers(worker, run) else None,
            "group": worker.group,
            "run_name": run.name,
            "barrier": in_gang(run),
            "leads": in_gang(run) and leads(run, worker),
            "array": bool(run.spec.get("array")),
            "time_limit_s": run.spec.get("time_limit"),
            "heartbeat_ttl_s": worker.heartbeat_ttl_s,
            "on_disconnect": run.spec.get("on_disconnect", LAUNCH.on_disconnect),
            "disconnect_after_s": worker.disconnect_after_s or LAUNCH.disconnect_after_s,
        }
    )


def _program(worker: Worker, runtime: JsonMap, model: JsonMap) -> dict[str, Any]:
    """What is started, and with how much of the machine."""
    stop: JsonMap = runtime.get("stop") or {}
    request: JsonMap = worker.request or {}
    return {
        "runner": runtime.get("runner", LAUNCH.runner),
        "command": tuple(runtime.get("command") or ()),
        "image": runtime.get("image"),
        "pull": runtime.get("pull", LAUNCH.pull),
        "mounts": tuple(LaunchMount.model_validate(m) for m in runtime.get("mounts") or ()),
        "memory_bytes": int(request.get("memory_bytes") or 0),
        "cpu_milli": int(request.get("cpu_milli") or 0),
        "env": dict(runtime.get("env") or {}),
        "workdir": runtime.get("workdir"),
        "source": model.get("source"),
        "gpus": tuple(worker.gpus),
        "stop_signal": stop.get("signal", LAUNCH.stop_signal),
        "stop_grace_s": float(stop.get("grace", LAUNCH.stop_grace_s)),
    }


def _given(run: Run, group: JsonMap, runtime: JsonMap) -> dict[str, Any]:
    """What the worker is given beside its program."""
    return {
        "secrets": dict(runtime.get("secrets") or {}),
        "registry_secret": runtime.get("registry_secret"),
        "configs": tuple(LaunchFile.model_validate(c) for c in runtime.get("configs") or ()),
        "expose": tuple(LaunchPort.model_validate(e) for e in group.get("expose") or ()),
        "drives": tuple(_drive(d) for d in run.spec.get("drives") or ()),
        "output_drive": run.spec.get("output"),
        "identity": bool(run.spec.get("identity")),
    }


def _drive(use: JsonMap) -> LaunchDrive:
    known: JsonMap = use.get("drive") or {}
    facts = {"size_bytes": int(known.get("size") or 0), "origin": known.get("machine")}
    return LaunchDrive.model_validate({**{k: v for k, v in use.items() if k != "drive"}, **facts})


def _wants_port(run: Run, group: JsonMap, runtime: JsonMap) -> bool:
    """A replica always has one port of the pool; a job only where something in its spec asks for it."""
    if run.replica is not None:
        return True
    texts = [*(runtime.get("command") or ()), *(runtime.get("env") or {}).values()]
    return any("{port}" in text for text in texts) or any(
        bool(asked) for asked in (runtime.get("ready"), runtime.get("live"))
    )


def _ready(runtime: JsonMap, model: JsonMap) -> Ready | None:
    asked: JsonMap | None = runtime.get("ready")
    if asked is None:
        return None
    return Ready(
        path=asked.get("path", READY.path),
        timeout_s=asked.get("timeout", READY.timeout_s),
        stall_s=asked.get("stall", READY.stall_s),
        interval_s=asked.get("interval", READY.interval_s),
        warmup_s=asked.get("warmup", READY.warmup_s),
        model=model.get("id"),
        aliases=tuple(model.get("aliases") or ()),
        request=asked.get("request"),
    )


def _live(runtime: JsonMap) -> Live | None:
    asked: JsonMap | None = runtime.get("live")
    if asked is None:
        return None
    return Live(
        path=asked.get("path", LIVE.path),
        interval_s=asked.get("interval", LIVE.interval_s),
        failures=asked.get("failures", LIVE.failures),
        fail_after_s=asked.get("fail_after", LIVE.fail_after_s),
    )
