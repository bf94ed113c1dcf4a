"""Whether a model is in a machine's cache yet, as its listing tells. Called by the machines' `wait_cached`."""

from dataclasses import dataclass
from typing import Any

from moorage.client.waiting import Done, Failed, KeepPolling, Verdict
from moorage.client.watching import Watch

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CacheWatch(Watch):
    """A wait for a model on a machine; `name` is the machine."""

    @property
    def remedy(self) -> str:
        """How to look further."""
        return f"look further with `moor cache ls {self.name}`"

    @property
    def onward(self) -> str:
        """How to wait on: it is fetched whoever watches, and the listing shows how far it is."""
        return ""


def models_of(cache: Json, source: str) -> list[Json]:
    """The models of a listing that a source may mean: with that commit, asked for so, or of which it is the start."""
    return [m for m in cache["models"] if source == m["source"] or source in m["names"] or _commits(source, m)]


def _commits(source: str, model: Json) -> bool:
    """Whether the model's source is that source with a commit in place of its revision."""
    from moorage.domain.sources import hub_source

    asked, known = hub_source(source), hub_source(model["source"])
    if asked is None or known is None or model["state"] == "cached" or asked.pinned:
        return False
    return asked.at("") == known.at("")


def nearest(models: list[Json]) -> Json:
    """The one to show: what is on its way before what is here, the one of which most is here."""
    return max(models, key=lambda m: (m["state"] == "fetching", m["done"]), default={})


def judge_model(cache: Json, source: str) -> Verdict:
    """Whether it is there. What is on its way is waited for: a branch may mean another model than the last time."""
    found = models_of(cache, source)
    by_state = {model["state"]: model for model in found}
    if "fetching" in by_state:
        return KeepPolling("is being fetched")
    if "failed" in by_state:
        return Failed(str(by_state["failed"]["error"]), None)
    return Done(False, None) if "cached" in by_state else KeepPolling("is not there yet")
