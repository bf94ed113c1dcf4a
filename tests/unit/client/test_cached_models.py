"""Whether a model is there: what is on its way is waited for, and a failure counts once nothing is."""

from typing import Any

import pytest

from moorage.client.caching import judge_model, models_of, nearest
from moorage.client.waiting import Done, Failed, KeepPolling

ASKED = "hf://org/name@main"
OLD, NEW = f"hf://org/name@{'a' * 40}", f"hf://org/name@{'b' * 40}"


def cached(source: str, *names: str) -> dict[str, Any]:
    return {"source": source, "state": "cached", "names": list(names), "done": 9, "error": None}


def other(source: str, state: str, done: int = 0, error: str | None = None) -> dict[str, Any]:
    return {"source": source, "state": state, "names": [], "done": done, "error": error}


@pytest.mark.parametrize(
    ("models", "verdict"),
    [
        ([], KeepPolling),
        ([cached(OLD, ASKED)], Done),
        ([cached(OLD)], KeepPolling),
        ([other(ASKED, "fetching")], KeepPolling),
        ([cached(OLD, ASKED), other(ASKED, "fetching")], KeepPolling),
        ([cached(OLD, ASKED), other(NEW, "fetching", 3)], KeepPolling),
        ([other(NEW, "partial", 3)], KeepPolling),
        ([other(ASKED, "failed", error="gated")], Failed),
        ([other(ASKED, "failed", error="gated"), other(ASKED, "fetching")], KeepPolling),
        ([other("hf://org/else@main", "failed", error="gated")], KeepPolling),
    ],
)
def test_each_state_of_the_cache_is_judged(models: list[dict[str, Any]], verdict: type) -> None:
    assert isinstance(judge_model({"models": models}, ASKED), verdict)


def test_a_commit_means_that_model_alone() -> None:
    cache = {"models": [cached(OLD, ASKED), other(NEW, "fetching", 3)]}
    assert models_of(cache, OLD) == cache["models"][:1]
    assert isinstance(judge_model(cache, OLD), Done)


def test_what_comes_is_shown_before_what_is_here() -> None:
    models = [cached(OLD, ASKED), other(ASKED, "fetching"), other(NEW, "fetching", 3)]
    assert nearest(models)["source"] == NEW
    assert nearest([]) == {}
