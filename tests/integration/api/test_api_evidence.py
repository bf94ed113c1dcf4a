"""Posting a quality score over the API: kept with its revision, told whether it counts, refused where it is wrong."""

import pytest
from api_world import World

from moorage.domain.nouns import Deployment, Revision

PATH = "/api/v1/namespaces/default/deployments/gemma/evidence"
BODY = {"revision": 1, "metric": "eval", "value": 0.93, "samples": 500}


async def revision_of(world: World) -> Revision:
    spec = {"rollout": {"guard": {"quality": {"name": "eval"}}}}
    await world.rows.create(Deployment(uid="dep-gemma", name="gemma", spec=spec))
    row = Revision(uid="rev-gemma", name="gemma-1", deployment="dep-gemma", number=1)
    await world.rows.create(row)
    return row


async def test_a_score_is_kept_with_its_revision_and_a_repeat_changes_nothing(world: World) -> None:
    row = await revision_of(world)
    answer = await world.admin.ask("POST", PATH, body=BODY)
    assert (answer.status, answer.json["changed"], answer.json["counts"]) == (200, True, True)
    kept = (await world.rows.load(row)).evidence["quality/eval"]
    assert list(kept["quality"]["eval"]) == [0.93, 500]
    assert (await world.admin.ask("POST", PATH, body=BODY)).json["changed"] is False


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "high"},
        {"samples": 0},
        {"metric": ""},
        {"revision": ""},
        {"extra": 1},
    ],
)
async def test_a_score_that_says_nothing_is_refused(world: World, wrong: dict[str, object]) -> None:
    row = await revision_of(world)
    assert (await world.admin.ask("POST", PATH, body={**BODY, **wrong})).status == 422
    assert not (await world.rows.load(row)).evidence


async def test_a_revision_that_is_not_there_is_not_found(world: World) -> None:
    assert (await world.admin.ask("POST", PATH, body=BODY)).status == 404
    await revision_of(world)
    answer = await world.admin.ask("POST", PATH, body={**BODY, "revision": "9"})
    assert answer.status == 404
    assert "revision 9" in answer.json["message"]
