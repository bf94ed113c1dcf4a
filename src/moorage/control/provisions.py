"""What a machine is given for one worker and nobody else is: secret values, a registry login, a certificate.

Asked for by the agent when it prepares the worker. Given only to the machine and incarnation that the worker is placed
on, under its present epoch, while it has not ended: whoever asks for another one's values is refused. Called by the
API's agent routes.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from moorage.control.authority import Authority
from moorage.control.drives import with_drives
from moorage.control.vault import Vault, resolve
from moorage.control.work import WorkBoard
from moorage.domain.errors import Conflict, Unavailable
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import ENDED_WORKER, WorkerState
from moorage.ports import Store
from moorage.wire.giving import IdentityAnswer, SecretsAnswer, SecretsRequest

log = structlog.get_logger("moorage.control")

LOGIN = ("username", "password")


class Provisions:
    """Gives out.

    Args:
        store: rows.
        vault: values.
        authority: signs certificates.
        board: tells the machines whose workers wait that something was set.
    """

    def __init__(self, store: Store, vault: Vault, authority: Authority, board: WorkBoard) -> None:
        self._store = store
        self._authority = authority
        self._vault = vault
        self._board = board
        self._waking: set[asyncio.Task[None]] = set()
        vault.on_change = self._wake_soon

    async def secrets(self, message: SecretsRequest) -> SecretsAnswer:
        """The values that a worker's spec names, and which of them are not there yet.

        Raises:
            Conflict: the worker is not placed on this machine under this epoch (any more).
        """
        worker, runtime = await self._asked_for(message)
        wanted: Mapping[str, str] = runtime.get("secrets") or {}
        registry: str | None = runtime.get("registry_secret")
        names = {reference.partition("/")[0] for reference in wanted.values()} | ({registry} if registry else set())
        kept = {name: await self._values(worker.namespace, name) for name in sorted(names)}
        values: dict[str, str] = {}
        missing: list[tuple[str, str]] = []
        for variable, reference in wanted.items():
            name = reference.partition("/")[0]
            value, key = resolve(reference, kept[name] or {})
            if value is None:
                missing.append((name, key))
            else:
                values[variable] = value
        login = dict(kept[registry] or {}) if registry else None
        missing += [(str(registry), key) for key in LOGIN if login is not None and key not in login]
        return SecretsAnswer(values=values, registry=login, missing=tuple(dict.fromkeys(missing)))

    async def _values(self, ns: str, name: str) -> Mapping[str, str] | None:
        """The values of a secret; one that cannot be opened here counts as missing, and the log says why."""
        try:
            return await self._vault.values(ns, name)
        except Unavailable as cause:
            log.error("a secret cannot be given out", secret=f"{ns}/{name}", why=cause.message)
            return None

    async def identity(self, message: SecretsRequest) -> IdentityAnswer:
        """A certificate for a worker whose run asks for one, or why it cannot be had now.

        Raises:
            Conflict: the worker is not placed on this machine under this epoch (any more), or asks for none.
        """
        worker, run = await self.placed(message)
        machine = await self._store.get(Machine, message.machine)
        if not run.spec.get("identity") or machine is None:
            raise _not_yours(message)
        try:
            certificate, key = await self._authority.issue(worker.namespace, run.name, worker.name, machine.host)
            return IdentityAnswer(certificate=certificate, key=key, authority=await self._authority.certificate())
        except Unavailable as cause:
            return IdentityAnswer(why=cause.message)

    async def drive(self, message: SecretsRequest, name: str) -> tuple[str, str]:
        """Namespace of a drive, and uid of the machine that has its data, for a worker that takes a copy of it.

        Raises:
            Conflict: the worker is not placed on this machine under this epoch, or takes no copy of that drive.
            Unavailable: the drive cannot be used now.
        """
        worker, run = await self.placed(message)
        run = (await with_drives(self._store, [run]))[run.uid]
        use = next((u for u in run.spec.get("drives") or () if u["name"] == name and u.get("place")), None)
        if use is None:
            raise _not_yours(message)
        known = use.get("drive")
        if known is None or known["unusable"]:
            raise Unavailable(f"the drive {name} cannot be used: {known['unusable'] if known else 'it is not there'}")
        return worker.namespace, known["machine"]

    async def _asked_for(self, message: SecretsRequest) -> tuple[Worker, Mapping[str, Any]]:
        worker, run = await self.placed(message)
        return worker, group_of(run, worker.group).get("runtime") or {}

    async def placed(self, message: SecretsRequest) -> tuple[Worker, Run]:
        """The worker that a message asks for, and its run.

        Raises:
            Conflict: it is not this machine's, or no longer.
        """
        worker = await self._store.get(Worker, message.worker)
        machine = await self._store.get(Machine, message.machine)
        here = worker is not None and machine is not None and worker.machine == machine.uid
        if worker is None or machine is None or not here or worker.epoch != message.epoch:
            raise _not_yours(message)
        if machine.incarnation != message.incarnation or worker.state in (*ENDED_WORKER, WorkerState.STOPPING):
            raise _not_yours(message)
        run = await self._store.get(Run, worker.run)
        if run is None:
            raise _not_yours(message)
        return worker, run

    def _wake_soon(self, namespace: str) -> None:
        task = asyncio.create_task(self._wake(namespace))
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _wake(self, namespace: str) -> None:
        """End the long-polls of machines on which a worker of the namespace is being set up."""
        waiting = await self._store.find(Worker, namespace=namespace, state=WorkerState.PREPARING)
        for machine in sorted({worker.machine for worker in waiting if worker.machine}):
            self._board.bump_soon(machine)


def group_of(run: Run, name: str) -> Mapping[str, Any]:
    """The group of a run's spec that a worker belongs to."""
    groups: tuple[Mapping[str, Any], ...] = tuple(run.spec.get("groups") or ({},))
    return next((g for g in groups if g.get("name") == name), groups[0])


def _not_yours(message: SecretsRequest) -> Conflict:
    return Conflict(
        f"worker {message.worker} is not placed on this machine under epoch {message.epoch}",
        code="not_placed_here",
        remedy="look at the newest desired set",
        target=f"Worker {message.worker}",
    )
