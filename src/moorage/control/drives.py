"""Drives: data of a namespace that lies on one machine, by name, size and site.

A drive has no lifecycle of its own: it is a record of where data lies, kept beside the rows under
`drive/NAMESPACE/NAME`. Its machine is named or chosen when it is made and stays. Called by the API's routes, and by
whoever loads runs and needs to know where the drives that their specs name are (`with_drives`).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from moorage.control.views import JsonObject, iso
from moorage.domain.errors import Conflict, InvalidSpec, NotFound, StaleVersion
from moorage.domain.ids import check_name
from moorage.domain.nouns import Deployment, Machine, Run
from moorage.domain.states import TERMINAL_RUN, DeploymentStatus, MachineState
from moorage.ports import Clock, Store
from moorage.wire.spec import Drive
from moorage.wire.spec import document as read_document

SITE = "moorage/site"
TRIES = 20


class Drives:
    """The drives.

    Args:
        store: keeps them.
        clock: when they were made.
        on_change: called when one was made or changed: work may wait for it.
    """

    def __init__(self, store: Store, clock: Clock, on_change: Callable[[], None]) -> None:
        self._store = store
        self._on_change = on_change
        self._clock = clock

    async def apply(self, ns: str, name: str, document: Mapping[str, Any]) -> JsonObject:
        """Make it, or change its size and labels; the same again changes nothing.

        Raises:
            InvalidSpec: the document is wrong, or names another drive.
            Conflict: no machine has room for it, or it lies elsewhere than the document says now.
        """
        wanted = _read(ns, name, document)
        for _ in range(TRIES):
            before = await self._store.secret(_place(ns, name))
            known = json.loads(before) if before is not None else None
            if known is None:
                record = self._made(wanted, await self._machine_for(wanted))
            else:
                record = self._changed(known, wanted, await self._store.get(Machine, known["machine"]))
            if record == known or await self._store.swap_secret(_place(ns, name), before, json.dumps(record)):
                self._on_change()
                return await self.get(ns, name)
        raise StaleVersion(f"the drive {ns}/{name} kept changing", remedy="send it again")

    async def listed(self, ns: str) -> list[JsonObject]:
        """Every drive of a namespace."""
        prefix = _place(ns, "")
        found = await self._store.secrets(prefix)
        machines = {m.uid: m for m in await self._store.find(Machine)} if found else {}
        return [_shown(ns, place.removeprefix(prefix), json.loads(kept), machines) for place, kept in found.items()]

    async def get(self, ns: str, name: str) -> JsonObject:
        """One of them.

        Raises:
            NotFound: there is none.
        """
        kept = await self._store.secret(_place(ns, name))
        if kept is None:
            raise _missing(ns, name)
        record = json.loads(kept)
        machine = await self._store.get(Machine, record["machine"])
        return _shown(ns, name, record, {machine.uid: machine} if machine else {})

    async def remove(self, ns: str, name: str) -> JsonObject:
        """Forget it. Its data stays where it is, and the answer says where.

        Raises:
            NotFound: there is none.
            Conflict: a run or deployment uses it.
        """
        shown = await self.get(ns, name)
        users = await self._users(ns, name)
        if users:
            raise Conflict(
                f"the drive {ns}/{name} is used by {', '.join(users[:5])}" + (" and others" if len(users) > 5 else ""),
                code="drive_in_use",
                remedy="end what uses it first",
                target=f"Drive {ns}/{name}",
            )
        before = await self._store.secret(_place(ns, name))
        if before is not None and not await self._store.swap_secret(_place(ns, name), before, None):
            raise StaleVersion(f"the drive {ns}/{name} was changed meanwhile", remedy="send it again")
        return {**shown, "deleted": True}

    async def _users(self, ns: str, name: str) -> list[str]:
        runs = [r for r in await self._store.find(Run, namespace=ns) if r.state not in TERMINAL_RUN]
        served = [
            d for d in await self._store.find(Deployment, namespace=ns) if d.status is not DeploymentStatus.STOPPED
        ]
        rows: list[Run | Deployment] = [*served, *runs]
        return [f"{row.kind} {row.name}" for row in rows if name in _used(row.spec)]

    async def _machine_for(self, wanted: Drive) -> Machine:
        """The machine that is named, else that of the site with the most room."""
        machines = [m for m in await self._store.find(Machine) if m.state is not MachineState.REMOVED]
        if wanted.machine is not None:
            found = next((m for m in machines if m.name == wanted.machine), None)
            if found is None:
                raise InvalidSpec(f"there is no machine {wanted.machine}", remedy="see `moor machines`")
            machines = [found]
        fit = [m for m in machines if _why_not(m, wanted) is None]
        if not fit:
            whys = "; ".join(f"{m.name}: {_why_not(m, wanted)}" for m in machines) or "no machine has joined"
            raise Conflict(
                f"no machine can keep the drive {wanted.name}: {whys}",
                code="no_room_for_drive",
                remedy="free room at a machine's data location, ask for less, or name another site",
            )
        return max(fit, key=lambda m: (m.state is MachineState.READY, int(dict(m.data or {}).get("free_bytes") or 0)))

    def _made(self, wanted: Drive, machine: Machine) -> dict[str, Any]:
        now = self._clock.now()
        return {
            "size": wanted.size,
            "site": wanted.site or machine.labels.get(SITE),
            "machine": machine.uid,
            "labels": dict(wanted.labels),
            "version": 1,
            "created_at": now,
            "updated_at": now,
        }

    def _changed(self, known: dict[str, Any], wanted: Drive, machine: Machine | None) -> dict[str, Any]:
        name = machine.name if machine is not None else known["machine"]
        moved = (wanted.machine or name) != name or (wanted.site or known["site"]) != known["site"]
        if moved:
            raise Conflict(
                f"the drive {wanted.name} lies on {name}; data is not moved",
                code="drive_lies_elsewhere",
                remedy="make another drive there, and copy what is to be kept",
            )
        fields = {"size": wanted.size, "labels": dict(wanted.labels)}
        if fields.items() <= known.items():
            return known
        return {**known, **fields, "version": known["version"] + 1, "updated_at": self._clock.now()}


async def with_drives(store: Store, runs: Iterable[Run]) -> dict[str, Run]:
    """Runs by uid, each drive of their specs with what is known of it (`drive`; absent where there is none)."""
    found = {run.uid: run for run in runs}
    using = [run for run in found.values() if run.spec.get("drives")]
    if not using:
        return found
    records = {place: json.loads(kept) for place, kept in (await store.secrets("drive/")).items()}
    uids = sorted({record["machine"] for record in records.values()})
    machines = {m.uid: m for m in await store.find(Machine, uid=uids)} if uids else {}
    for run in using:
        uses = [_use(run.namespace, use, records, machines) for use in run.spec["drives"]]
        found[run.uid] = replace(run, spec={**run.spec, "drives": uses})
    return found


def _use(
    ns: str, use: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]], machines: Mapping[str, Machine]
) -> dict[str, Any]:
    record = records.get(_place(ns, use["name"]))
    if record is None:
        return dict(use)
    machine = machines.get(record["machine"])
    facts = {
        "size": record["size"],
        "site": record["site"],
        "machine": record["machine"],
        "machine_name": machine.name if machine else record["machine"],
        "unusable": _unusable(machine),
    }
    return {**use, "drive": facts}


def _unusable(machine: Machine | None) -> str | None:
    if machine is None or machine.state is MachineState.REMOVED:
        return "its machine was removed"
    return None if machine.state is MachineState.READY else f"its machine {machine.name} is {machine.state}"


def _why_not(machine: Machine, wanted: Drive) -> str | None:
    if not machine.data:
        return "it has no data location"
    if wanted.site is not None and machine.labels.get(SITE) != wanted.site:
        return f"it is not in the site {wanted.site}"
    free = int(machine.data.get("free_bytes") or 0)
    return None if free >= wanted.size else f"{free} bytes are free and {wanted.size} are needed"


def _read(ns: str, name: str, document: Mapping[str, Any]) -> Drive:
    found = read_document({"kind": "Drive", **document})
    if not isinstance(found, Drive) or (found.namespace, found.name) != (ns, name):
        raise InvalidSpec(
            f"the document is not the drive {ns}/{name}",
            errors=[{"path": "name", "message": f"the address says {ns}/{name}"}],
            remedy="send the document of that drive",
        )
    return found


def _used(spec: Mapping[str, Any]) -> set[str]:
    return {str(use["name"]) for use in spec.get("drives") or ()}


def _place(ns: str, name: str) -> str:
    return f"drive/{ns}/{name}"


def _shown(ns: str, name: str, record: Mapping[str, Any], machines: Mapping[str, Machine]) -> JsonObject:
    machine = machines.get(record["machine"])
    data = dict(machine.data or {}) if machine else {}
    return {
        "kind": "Drive",
        "id": f"{ns}/{name}",
        "name": name,
        "namespace": ns,
        "labels": dict(record["labels"]),
        "size": record["size"],
        "site": record["site"],
        "machine": machine.name if machine else record["machine"],
        "path": f"{data['path']}/drives/{ns}/{name}" if data.get("path") else None,
        "unusable": _unusable(machine),
        "version": record["version"],
        "created_at": iso(record["created_at"]),
        "updated_at": iso(record["updated_at"]),
    }


def _missing(ns: str, name: str) -> NotFound:
    check_name(name)
    return NotFound(
        f"there is no drive {ns}/{name}", remedy="`moor drives ls` shows those there are", target=f"Drive {ns}/{name}"
    )
