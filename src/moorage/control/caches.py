"""The models that machines keep: asked of their agents, shown to people. Nothing of it is stored here."""

from collections.abc import Callable, Iterable
from typing import Any

from moorage.control.asking import Asking
from moorage.control.views import iso
from moorage.domain.errors import Conflict, InvalidSpec, MoorageError, NotFound, Unavailable
from moorage.domain.nouns import Machine, Worker
from moorage.domain.sources import hub_source
from moorage.ports import Store
from moorage.wire.cache import Action, CacheAnswer, CachedModel, CacheRequest

CacheAsking = Asking[CacheRequest, CacheAnswer]
"""The questions under way."""

ANSWER_S = 15.0
"""A machine answers within a round trip; to remove a large model takes its disk longer."""

Answer = dict[str, Any]


class MachineCaches:
    """Asks.

    Args:
        store: names of workers.
        asking: to machines; the same one that builds `Work`.
        new_id: unguessable ids.
    """

    def __init__(self, store: Store, asking: CacheAsking, new_id: Callable[[], str]) -> None:
        self._store = store
        self._asking = asking
        self._new_id = new_id

    async def ask(self, machine: Machine, action: Action = "list", source: str = "", *, pin: bool = False) -> Answer:
        """Do something, and say what is there then: a ModelCache object.

        Raises:
            InvalidSpec: the source is none of a hub.
            NotFound: such a model is not there.
            Conflict: it is used or pinned.
            Unavailable: the machine does not answer.
        """
        if action != "list" and hub_source(source) is None:
            raise InvalidSpec(
                f"{source} is a path: only what comes from a hub is cached",
                remedy="name it as hf://ORG/NAME@REVISION",
                errors=[{"path": "source", "message": "not hf://ORG/NAME"}],
            )
        question = CacheRequest(id=self._new_id(), action=action, source=source, pin=pin)
        told = await self._asking.ask(machine.uid, question, ANSWER_S)
        if told is None:
            raise Unavailable(
                f"machine {machine.name} did not answer within {ANSWER_S:g} s",
                remedy=f"see whether its agent runs and reaches the server: moor get machine {machine.name}",
                target=f"Machine {machine.name}",
                code="machine_silent",
                retry_after_s=5.0,
            )
        if told.refused is not None:
            raise _refusal(machine, told)
        return await self._shown(machine, told)

    async def _shown(self, machine: Machine, told: CacheAnswer) -> Answer:
        names = await self._names({uid for model in told.models for uid in model.used_by})
        return {
            "kind": "ModelCache",
            "machine": machine.name,
            "path": told.path,
            "limit_bytes": told.limit_bytes,
            "disk_bytes": told.disk_bytes,
            "free_bytes": told.free_bytes,
            "models": [_model(model, names) for model in sorted(told.models, key=lambda m: (m.source, m.state))],
        }

    async def _names(self, uids: Iterable[str]) -> dict[str, str]:
        wanted = sorted(uids)
        rows = await self._store.find(Worker, uid=wanted) if wanted else []
        return {worker.uid: worker.name for worker in rows}


def _model(model: CachedModel, names: dict[str, str]) -> Answer:
    return {
        **model.model_dump(mode="json"),
        "fetched_at": iso(model.fetched_at) if model.fetched_at is not None else None,
        "used_at": iso(model.used_at) if model.used_at is not None else None,
        "used_by": [names.get(uid, uid) for uid in model.used_by],
    }


def _refusal(machine: Machine, told: CacheAnswer) -> MoorageError:
    message = f"{machine.name}: {told.refused}"
    target = f"Machine {machine.name}"
    if told.code == "model_absent":
        remedy = f"`moor cache ls {machine.name}` shows what is there"
        return NotFound(message, code=told.code, remedy=remedy, target=target)
    if told.code == "model_ambiguous":
        return Conflict(message, code=told.code, remedy="name the one that is meant, with its commit", target=target)
    if told.code == "model_in_use":
        remedy = "stop who uses it first, or leave it: it goes by itself when room is needed and nobody uses it"
        return Conflict(message, code=told.code, remedy=remedy, target=target)
    if told.code == "model_pinned":
        remedy = f"moor cache unpin SOURCE --machine {machine.name}, then evict it"
        return Conflict(message, code=told.code, remedy=remedy, target=target)
    return InvalidSpec(message, target=target)
