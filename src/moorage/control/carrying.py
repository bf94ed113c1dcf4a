"""How a person's command becomes durable: decide, commit under the idempotency key, answer.

A stale version, or a name that somebody else has by now, means: load and decide again. An answer is given only after
it is durable; the same key and intent get the first answer, the same key with another intent is refused. Called by the
admission of each noun.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Outcome
from moorage.domain.changes import Change, Key, Update
from moorage.domain.errors import Conflict, Fenced, KeyReused, MoorageError, StaleVersion
from moorage.domain.ids import digest
from moorage.ports import Store

ATTEMPTS = 20

NOTHING = Update("Deployment", "dep-", 0)
"""A write that is always stale: under it a key is looked up and never kept."""

Answer = dict[str, Any]


class Carrier:
    """Carries commands out.

    Args:
        store: outside.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(
        self, ns: str, key: str | None, intent: Mapping[str, Any], decide: Callable[[], Awaitable[Outcome]]
    ) -> Answer:
        """The answer of a command, once it is durable.

        Args:
            ns: namespace of the key.
            key: idempotency key, or None.
            intent: what is asked for; two requests with equal intents are the same request.
            decide: loads and decides; called again while rows move on meanwhile.

        Raises:
            KeyReused: the key belongs to another intent.
            StaleVersion: the rows kept changing.
        """
        for _ in range(ATTEMPTS):
            try:
                outcome = await decide()
            except MoorageError:
                first = await self._first_answer(ns, key, intent)
                if first is None:
                    raise
                return first
            change = outcome.change
            if change is None and key is None:
                return dict(outcome.answer)
            kept = Key(ns, key, digest(intent), outcome.answer) if key else None
            change = replace(change, key=kept) if change else Change((), "system", key=kept)
            try:
                done = await self._store.commit(change)
            except (KeyReused, Fenced):
                raise
            except Conflict:  # the row, or who bears the name, is another one by now
                continue
            return dict(done.result or {}) if done.replayed else dict(outcome.answer)
        raise StaleVersion("the object kept changing while the command was carried out", remedy="send it again")

    async def _first_answer(self, ns: str, key: str | None, intent: Mapping[str, Any]) -> Answer | None:
        """What was answered under this key before, though the same would be refused now (it is gone, or exists).

        Raises:
            KeyReused: the key belongs to another intent.
        """
        if key is None:
            return None
        probe = Change((NOTHING,), "system", key=Key(ns, key, digest(intent), {}))
        try:
            done = await self._store.commit(probe)
        except StaleVersion:
            return None
        return dict(done.result or {})
