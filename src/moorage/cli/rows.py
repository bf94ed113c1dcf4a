"""Which columns people see of each kind of object. Objects in, tables out; no printing, no questions to the API."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moorage.cli import asides
from moorage.cli.layout import Column, Table
from moorage.cli.times import age, clock

Object = Mapping[str, Any]
REASON = Column("REASON", flex=True)
AGE = Column("AGE", right=True)
QUEUE = (Column("#", right=True), Column("NAME"), Column("PRIORITY", right=True), Column("WAITS", right=True), REASON)


def table(kind: str, items: Sequence[Object], now: float) -> Table:
    """The table of a kind.

    Args:
        kind: `deployments`, `runs`, `endpoints`, `machines`, `operations`, `workers`, `replicas`, `revisions` or
            `deleted`.
        items: objects of that kind.
        now: seconds since the epoch, for ages.
    """
    columns, row, empty = _KINDS[kind]
    return Table(columns, tuple(row(item, now) for item in items), empty)


def why(item: Object) -> str:
    """The sentence of an object's reason."""
    reason = item.get("reason") or {}
    return str(reason.get("message") or "")


def short(uid: Any) -> str:
    """A uid as people can still copy it."""
    return str(uid or "-")


def size(value: Any) -> str:
    """Bytes as GiB, as machines are spoken of."""
    return f"{float(value or 0) / (1 << 30):.0f}GiB"


def _deployment(item: Object, now: float) -> tuple[str, ...]:
    return (
        str(item["name"]),
        str(item.get("phase") or item.get("status")),
        f"{item.get('ready_replicas', 0)}/{item.get('desired_replicas', 0)}",
        age(item.get("created_at"), now),
        str((item.get("rollout") or {}).get("message") or why(item)),
    )


def _endpoint(item: Object, now: float) -> tuple[str, ...]:
    routes = item.get("routes") or ()
    return (
        str(item["name"]),
        "yes" if item.get("serving") else "no",
        ", ".join(_route(route) for route in routes),
        "deployment" if item.get("own") else "people",
        age(item.get("created_at"), now),
    )


def _route(route: Object) -> str:
    share = f"{route.get('share', 0):g} % {route['deployment']}"
    return share if route.get("serving") else f"{share} ({route.get('passed_over') or route.get('phase')})"


def _run(item: Object, now: float) -> tuple[str, ...]:
    workers = item.get("workers") or {}
    exit_code = item.get("exit_code")
    return (
        str(item["name"]),
        str(item.get("state")),
        f"{workers.get('running', 0)}/{workers.get('total', 0)}",
        "-" if exit_code is None else str(exit_code),
        age(item.get("created_at"), now),
        why(item),
    )


def _worker(item: Object, now: float) -> tuple[str, ...]:
    process = item.get("process") or {}
    return (
        str(item.get("id")),
        str(item.get("name")),
        str(item.get("state")),
        str(item.get("machine") or "-"),
        str(process.get("pid") or process.get("container") or "-"),
        str(item.get("epoch", 0)),
        age(item.get("started_at"), now),
        why(item),
    )


def _machine(item: Object, now: float) -> tuple[str, ...]:
    capacity, allocated = item.get("capacity") or {}, item.get("allocated") or {}
    gpus = item.get("gpus") or ()
    draining = item.get("draining")
    drained = ["drained" if draining.get("drained_at") else "draining"] if draining else []
    marks = drained or (["cordoned"] if item.get("cordoned") else [])
    return (
        str(item["name"]),
        ",".join([str(item.get("state")), *marks]),
        f"{allocated.get('cpu_milli', 0) / 1000:g}/{capacity.get('cpu_milli', 0) / 1000:g}",
        f"{size(allocated.get('memory_bytes'))}/{size(capacity.get('memory_bytes'))}",
        f"{sum(1 for gpu in gpus if gpu.get('holder') != 'free')}/{len(gpus)}",
        age(item.get("created_at"), now),
        why(item),
    )


def _operation(item: Object, now: float) -> tuple[str, ...]:
    steps = item.get("steps") or ()
    target = item.get("target") or {}
    step = next((s["name"] for s in steps if s.get("state") != "done"), "-")
    waiting, error = item.get("waiting_reason") or {}, item.get("error") or {}
    return (
        short(item.get("id")),
        str(item.get("operation")),
        str(target.get("name") or target.get("id") or "-"),
        str(item.get("state")),
        step,
        age(item.get("created_at"), now),
        str(error.get("message") or waiting.get("message") or why(item)),
    )


def _of_its_worker(item: Object) -> str:
    """What its worker is doing, as long as that is on its way; else its own reason."""
    reason = item.get("worker_reason") or {}
    return str(reason.get("message") or why(item))


def _replica(item: Object, now: float) -> tuple[str, ...]:
    return (
        f"{item.get('ordinal')}.{item.get('attempt')}",
        str(item.get("status")),
        asides.routed(item),
        ",".join(item.get("machines") or ()) or "-",
        str(item.get("address") or "-"),
        age(item.get("created_at"), now),
        asides.briefly(item) or _of_its_worker(item),
    )


def _revision(item: Object, now: float) -> tuple[str, ...]:
    return (
        str(item.get("number")),
        str(item.get("state")),
        str(item.get("digest"))[:19],
        age(item.get("created_at"), now),
        why(item),
    )


def _deleted(item: Object, now: float) -> tuple[str, ...]:
    return (
        str(item["name"]),
        "-" if item.get("deployment") else str(item.get("state")),  # what a replica did is told by the replica
        str(item.get("id")),
        str(((item.get("reason") or {}).get("params") or {}).get("by") or item.get("actor") or "-"),
        age(item.get("deleted_at"), now),
        why(item),
    )


def change_line(item: Object, *, with_object: bool) -> tuple[str, ...]:
    """One row of history: when, what, from → to, why."""
    thing = item.get("object") or {}
    if item.get("kind") == "note" or not item.get("to"):
        moved = "(note)"
    else:
        moved = f"{item['from']} → {item['to']}" if item.get("from") else f"→ {item['to']}"
    named = f"{thing.get('kind')} {thing.get('name') or thing.get('id')}"
    head = (clock(item.get("at")), named, moved) if with_object else (clock(item.get("at")), moved)
    reason = item.get("reason") or {}
    return (*head, str(reason.get("code") or ""), why(item))


HISTORY = (Column("AT"), Column("CHANGE"), Column("CODE", minor=True), REASON)
EVENTS = (Column("AT"), Column("OBJECT"), Column("CHANGE"), Column("CODE", minor=True), REASON)
EVENTS_LEAST = (12, 34, 30, 24)
"""Widths that most events fit, so that those to come stand under those that were."""
EVENTS_LEAST_BELOW = (12, 30, 30)
"""The same where reasons stand below; it fits 80 columns."""

_Row = Callable[[Object, float], tuple[str, ...]]
STATE = Column("STATE", state=True)
_KINDS: Mapping[str, tuple[tuple[Column, ...], _Row, str]] = {
    "deployments": (
        (Column("NAME"), Column("PHASE", state=True), Column("READY", right=True), AGE, REASON),
        _deployment,
        "no deployments here; make one with `moor serve` or `moor apply -f`",
    ),
    "endpoints": (
        (Column("NAME"), Column("SERVING"), Column("ANSWERED BY", flex=True), Column("MADE BY", minor=True), AGE),
        _endpoint,
        "no endpoints that people made; every deployment has one of its own name (moor endpoint ls --all)",
    ),
    "runs": (
        (Column("NAME"), STATE, Column("RUNNING", right=True), Column("EXIT", right=True), AGE, REASON),
        _run,
        "no runs here",
    ),
    "workers": (
        (
            *(Column("ID"), Column("WORKER"), STATE, Column("MACHINE"), Column("PROCESS", right=True)),
            *(Column("EPOCH", right=True, minor=True), AGE, REASON),
        ),
        _worker,
        "no workers",
    ),
    "machines": (
        (
            *(Column("NAME"), STATE, Column("CPU", right=True), Column("MEMORY", right=True)),
            *(Column("GPUS", right=True), AGE, REASON),
        ),
        _machine,
        "no machine has joined; `moor up` starts an agent on this one",
    ),
    "operations": (
        (Column("ID"), Column("OPERATION"), Column("TARGET"), STATE, Column("STEP", minor=True), AGE, REASON),
        _operation,
        "no operations",
    ),
    "replicas": (
        (
            *(Column("REPLICA"), Column("STATUS", state=True), Column("ROUTED"), Column("MACHINE")),
            *(Column("ADDRESS"), AGE, REASON),
        ),
        _replica,
        "no replicas",
    ),
    "revisions": (
        (Column("NUMBER", right=True), STATE, Column("DIGEST", minor=True), AGE, REASON),
        _revision,
        "no revisions",
    ),
    "deleted": (
        (Column("NAME"), STATE, Column("ID"), Column("BY"), Column("DELETED", right=True), REASON),
        _deleted,
        "nothing was deleted here",
    ),
}
"""Each kind: its columns, its row, and what is said when there is none."""
