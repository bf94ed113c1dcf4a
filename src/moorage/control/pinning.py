"""Which commit a revision's model is: looked up when the revision is made, so that one digest always means one model.

What cannot be looked up here (no way to the hub, no right to see it) stays as it was pinned before, where the
deployment still asks for the same source; else each machine looks it up, and whoever applies is warned. Called by
`admit`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from moorage.control.vault import Vault, resolve
from moorage.decide.serving.commands import Intent, Known
from moorage.decide.serving.starting import SOURCE
from moorage.domain.errors import InvalidSpec, NotFound, Unavailable
from moorage.domain.ids import digest
from moorage.domain.sources import HubSource, hub_source
from moorage.ports import ModelSources

TOKEN = "HF_TOKEN"
"""Variable of a secret with which a spec opens its hub; the same that machines use."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a source without a commit means now.

    Args:
        source: as the spec has it.
        commit: of it; None: it could not be told.
        why: it could not be told.
    """

    source: HubSource
    commit: str | None
    why: str | None = None


class Pins:
    """Looks sources up.

    Args:
        sources: where it is asked.
        vault: the secrets that specs name.
    """

    def __init__(self, sources: ModelSources, vault: Vault) -> None:
        self._sources = sources
        self._vault = vault

    async def look(self, intent: Intent) -> Look | None:
        """What the intent's source means now; None where there is nothing to look up.

        Raises:
            InvalidSpec: its repository has no such revision.
        """
        source = _source(intent.spec)
        if source is None or source.pinned:
            return None
        try:
            return Look(source, await self._sources.commit_of(source, await self._token(intent)))
        except NotFound as cause:
            raise InvalidSpec(
                f"model.source: {cause.message}",
                remedy="name a revision that there is",
                errors=[{"path": "model.source", "message": cause.message}],
            ) from cause
        except Unavailable as cause:
            return Look(source, None, cause.message)

    async def _token(self, intent: Intent) -> str | None:
        secrets: Mapping[str, str] = (intent.spec.get("runtime") or {}).get("secrets") or {}
        reference = secrets.get(TOKEN)
        if reference is None:
            return None
        kept = await self._vault.values(intent.namespace, reference.partition("/")[0])
        return resolve(reference, kept or {})[0]


def pinned(intent: Intent, known: Known | None, look: Look | None) -> Intent:
    """The intent with its model's commit, and the digest of both: its documents stay as they were written."""
    if look is None:
        return intent
    source = look.source.at(look.commit) if look.commit is not None else _as_before(intent, known)
    if source is None:
        return intent
    pins = {SOURCE: str(source)}
    return replace(intent, pins=pins, digest=digest({"part": dict(intent.revision), "pins": pins}))


def warnings(intent: Intent, known: Known | None, look: Look | None) -> list[str]:
    """What whoever applies should know of it."""
    if look is None:
        return []
    before = _as_before(intent, known)
    if look.commit is None and before is None:
        return [
            f"model.source: what {look.source} means now could not be looked up here ({look.why}); each machine looks "
            "it up when it fetches it, so replicas may differ if it moves meanwhile. Name a commit to be sure"
        ]
    if look.commit is None:
        return [f"model.source: {look.source} could not be looked up ({look.why}); it stays at {before}"]
    if before is not None and before.revision != look.commit:
        return [f"model.source: {look.source} has moved from {before.revision} to {look.commit}: a new revision"]
    return []


def _as_before(intent: Intent, known: Known | None) -> HubSource | None:
    """What the same source was pinned to in the deployment's current revision."""
    if known is None:
        return None
    current = known.deployment.candidate_revision or known.deployment.active_revision
    revision = next((r for r in known.revisions if r.uid == current), None)
    if revision is None or SOURCE not in revision.pins or _source(revision.spec) != _source(intent.spec):
        return None
    return hub_source(str(revision.pins[SOURCE]))


def _source(spec: Mapping[str, Any]) -> HubSource | None:
    source = (spec.get("model") or {}).get("source")
    return hub_source(source) if source else None
