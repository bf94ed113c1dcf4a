"""A posted score is kept with exactly its revision, once, and decides only where the spec asks for it."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.serving import scores
from moorage.decide.serving.evidence import carried, compared
from moorage.decide.serving.scores import METRICS_MAX, Score
from moorage.domain.changes import Update
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.states import RevisionState

NAMED = {"rollout": {"guard": {"quality": {"name": "eval", "max_drop": 0.01}}}}
DEPLOYMENT = Deployment(uid="dep-1", name="gemma", spec=NAMED)
ROWS = tuple(Revision(uid=f"rev-{n}", name=f"gemma-{n}", deployment="dep-1", number=n) for n in (1, 2))
SCORE = Score("2", "eval", 0.93, 500)


def posted(score: Score = SCORE, rows: tuple[Revision, ...] = ROWS, deployment: Deployment = DEPLOYMENT) -> Any:
    return scores.post(deployment, rows, score, 5.0, actor="person:ada")


def evidence_after(outcome: Any) -> dict[str, Any]:
    (update,) = outcome.change.writes
    assert isinstance(update, Update)
    return dict(update.fields["evidence"])


@pytest.mark.parametrize("word", ["2", "gemma-2", "rev-2"])
def test_a_revision_is_named_by_number_name_or_id(word: str) -> None:
    outcome = posted(replace(SCORE, revision=word))
    assert outcome.answer["revision"] == "rev-2"
    assert outcome.answer["counts"] is True
    assert compared(evidence_after(outcome), "none").quality == {"eval": (0.93, 500)}


def test_who_posted_it_is_in_the_history() -> None:
    (update,) = posted().change.writes
    assert [(note.code, note.params["by"]) for note in update.notes] == [("revision.scored", "person:ada")]


def test_the_same_score_again_writes_nothing_and_another_one_replaces_it() -> None:
    row = replace(ROWS[1], evidence=evidence_after(posted()))
    assert posted(rows=(ROWS[0], row)).change is None
    again = posted(replace(SCORE, value=0.91, samples=20), rows=(ROWS[0], row))
    assert compared(evidence_after(again), "canary").quality == {"eval": (0.91, 20)}


def test_a_metric_that_the_spec_does_not_ask_for_is_kept_and_said_not_to_count() -> None:
    assert posted(replace(SCORE, metric="other")).answer["counts"] is False
    assert posted(deployment=replace(DEPLOYMENT, spec={})).answer["counts"] is False


def test_an_unknown_revision_is_told_which_ones_there_are() -> None:
    with pytest.raises(NotFound) as caught:
        posted(replace(SCORE, revision="7"))
    assert "1, 2" in str(caught.value.remedy)


@pytest.mark.parametrize("state", [RevisionState.REJECTED, RevisionState.FAILED, RevisionState.CANCELLED])
def test_a_revision_that_is_over_takes_none(state: RevisionState) -> None:
    with pytest.raises(Conflict):
        posted(rows=(replace(ROWS[1], state=state),))


def test_one_revision_holds_so_many_metrics_and_no_more() -> None:
    row = ROWS[1]
    for n in range(METRICS_MAX):
        row = replace(row, evidence=evidence_after(posted(replace(SCORE, metric=f"m{n}"), rows=(row,))))
    with pytest.raises(Conflict):
        posted(rows=(row,))
    assert posted(replace(SCORE, metric="m0", value=0.5), rows=(row,)).change is not None


def test_it_stays_when_another_comparison_begins() -> None:
    kept = {**evidence_after(posted()), "synthetic": {"requests": 5}, "g/i/e": {"requests": 7}}
    assert carried(kept) == evidence_after(posted())
