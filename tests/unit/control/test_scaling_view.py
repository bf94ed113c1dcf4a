"""How a deployment scales, as people are told it."""

from typing import Any

import pytest

from moorage.cli.commands.switches import scaling_words
from moorage.cli.commands.why import words
from moorage.control.scaling import last_reason, scaling_object
from moorage.decide.serving.snapshot import Load
from moorage.domain.nouns import Deployment
from moorage.domain.reasons import reason

HELD = reason("scale.held_stability", to=1, until=2_000.0)


def row(scaling: dict[str, Any] | None = None, low: int = 1, high: int = 4) -> Deployment:
    return Deployment(
        uid="dep-1",
        name="gemma",
        namespace="default",
        spec={"replicas": {"min": low, "max": high}},
        scaling=scaling,
        initial_scale_reached=True,
    )


def kept(why: Any = HELD, desired: int = 3) -> dict[str, Any]:
    return {"desired": desired, "since": 1_000.0, "at": 1_500.0, "reason": why.to_wire()}


@pytest.mark.parametrize(
    ("deployment", "code"),
    [
        (row(), "scale.undecided"),
        (row(high=1), "scale.disabled"),
        (row(kept(), high=1), "scale.disabled"),
        (row(kept()), "scale.held_stability"),
    ],
    ids=["new", "one size", "one size now", "decided"],
)
def test_there_is_a_reason_whatever_was_decided(deployment: Deployment, code: str) -> None:
    assert last_reason(deployment).code == code


def test_it_is_said_in_words_with_what_held_it_and_the_load_it_was_made_on() -> None:
    shown = scaling_object(row(kept()), Load(stable=3.25, urgent=1.0, stable_s=300.0, peak=24.0))
    text = scaling_words(shown)
    assert text.splitlines()[0] == "gemma: 3 replicas wanted (between 1 and 4)"
    assert "the load has not lasted long enough" in text
    assert "1 requests in flight or held now, 3.25 over 300 s, 24 at most; 8 for a replica" in text
    assert shown["decided_at"] == "1970-01-01T00:25:00.000Z"


def test_why_says_the_last_scaling_decision_and_is_silent_about_one_that_does_not_scale() -> None:
    found = {"phase": "ACTIVE", "reason": {"message": "3 of 3 replicas ready"}}
    scaling = {"desired": 3, "reason": HELD.to_wire(), "since": None}
    assert f"  scaling: 3 replicas wanted. {HELD.message}" in words("gemma", {**found, "scaling": scaling})
    fixed = {"desired": 1, "reason": reason("scale.disabled").to_wire()}
    assert "scaling" not in words("gemma", {**found, "scaling": fixed})
