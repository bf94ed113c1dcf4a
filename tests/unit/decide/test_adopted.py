"""Adopted servers: watched, given traffic, or ended, each only as its mode allows."""

from dataclasses import replace

import pytest

from moorage.decide.decision import Draft
from moorage.decide.serving import adopted
from moorage.decide.serving.adopted import Found, Probe
from moorage.decide.serving.snapshot import Demand, ServingSnapshot
from moorage.domain.changes import Create, Remove
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Operation
from moorage.domain.states import DeploymentStatus

NOW = 1000.0


class Ids:
    def __init__(self):
        self.n = 0

    def new(self, kind):
        self.n += 1
        return f"{kind.lower()[:3]}-{self.n}"


def found(mode="traffic", **more):
    upstream = {"url": "http://box:8000", "host": "box", "port": 8000, "mode": mode, **more}
    return Found("default", "old", {"model": {"id": "m"}}, upstream)


def made(mode="traffic", **change):
    outcome = adopted.adopt(found(mode), None, Ids(), NOW, actor="person:p")
    row = next(w.row for w in outcome.change.writes if isinstance(w, Create) and isinstance(w.row, Deployment))
    return replace(row, upstream={**row.upstream, **change.pop("upstream", {})}, **change)


def operation(kind, deployment):
    return Operation(
        uid="op-1", operation=kind, target=deployment.uid, actor="person:p", steps=adopted.first_steps(kind, 0, NOW)
    )


def facts(kind, deployment, **demand):
    snapshot = ServingSnapshot(NOW, deployment, (), (), {}, {}, (), demand=Demand(**{"confirmed": True, **demand}))
    draft = Draft(snapshot.rows(), NOW, "t")
    of = {"adopt": adopted.adopt_facts, "stop": adopted.stop_facts, "delete": adopted.delete_facts}
    told = of[kind](draft, snapshot, operation(kind, deployment))
    change = draft.decision().change
    return told, change


def test_an_adoption_makes_a_deployment_that_says_how_far_it_is_ours():
    assert {mode: made(mode).ownership for mode in adopted.MODES} == {m: m for m in adopted.MODES}


def test_the_same_adoption_again_changes_nothing():
    assert adopted.adopt(found(), made(), Ids(), NOW, actor="a").change is None


@pytest.mark.parametrize("known", [Deployment(uid="d", name="old"), made("observe"), made(deleting=True)])
def test_a_name_that_is_taken_otherwise_is_refused(known):
    with pytest.raises(Conflict) as refused:
        adopted.adopt(found(), known, Ids(), NOW, actor="a")
    assert refused.value.remedy


def test_only_what_answers_gets_requests():
    assert adopted.target(made()) is None
    assert adopted.target(made(upstream={"healthy": False})) is None
    replica, worker = adopted.target(made(upstream={"healthy": True}))
    assert (worker.address, replica.routed) == ("box:8000", True)


def test_what_is_only_observed_never_gets_any():
    assert adopted.target(made("observe", upstream={"healthy": True})) is None


def test_a_look_is_written_when_it_tells_something_new_and_only_then():
    first = adopted.seen(made(), Probe(True, None, ("m",)), NOW)
    (update,) = first.change.writes
    assert update.fields["upstream"]["healthy"] is True
    assert update.reason.code == "deploy.upstream_ready"
    again = made(ever_ready=True, upstream={"healthy": True, "why": None, "models": ["m"]})
    assert adopted.seen(again, Probe(True, None, ("m",)), NOW).change is None
    lost = adopted.seen(again, Probe(False, "no answer"), NOW)
    assert lost.change.writes[0].reason.code == "deploy.upstream_unready"


def test_a_server_is_said_to_list_a_model_only_where_one_was_named():
    told = [
        adopted.seen(replace(made(), spec=spec), Probe(True, None, ("m",)), NOW).change.writes[0].reason.message
        for spec in ({"model": {"id": "m"}}, {"model": {"id": None}}, {})
    ]
    assert told == ["http://box:8000 answers, and lists m", "http://box:8000 answers", "http://box:8000 answers"]


def test_a_look_that_comes_after_a_stop_changes_nothing():
    assert adopted.seen(made(status=DeploymentStatus.STOPPED), Probe(True), NOW).change is None


def test_its_adoption_is_done_once_it_was_reached():
    assert facts("adopt", made())[0].done == 1
    assert facts("adopt", made(ever_ready=True))[0].done == 2


@pytest.mark.parametrize("mode", ["observe", "traffic"])
def test_a_delete_never_ends_what_is_observed_or_only_given_traffic(mode):
    deployment = made(mode, deleting=True, status=DeploymentStatus.STOPPED)
    assert not adopted.wants_end(deployment, Demand(confirmed=True))
    told, change = facts("delete", deployment)
    assert told.done == 5
    assert [type(w) for w in change.writes] == [Remove]


def test_a_lifecycle_managed_one_is_ended_only_after_it_is_withdrawn_and_drained():
    deployment = made("lifecycle", deleting=True, status=DeploymentStatus.STOPPED)
    name = adopted.pseudo_replica(deployment)
    assert not adopted.wants_end(deployment, Demand(confirmed=True, published_targets=frozenset({name})))
    assert not adopted.wants_end(deployment, Demand(confirmed=False))
    assert not adopted.wants_end(deployment, Demand(confirmed=True, by_replica={name: 1}))
    assert adopted.wants_end(deployment, Demand(confirmed=True))
    assert not adopted.wants_end(made("lifecycle"), Demand(confirmed=True))


def test_its_tombstone_waits_for_the_proof_that_it_is_gone():
    deployment = made("lifecycle", deleting=True, status=DeploymentStatus.STOPPED)
    told, change = facts("delete", deployment)
    assert (told.done, change) == (2, None)
    gone = replace(deployment, upstream={**deployment.upstream, "gone": True})
    assert facts("delete", gone)[0].done == 5
    stays = replace(deployment, upstream={**deployment.upstream, "end_error": "it still runs", "resource": "pid:7"})
    assert "it still runs" in facts("delete", stays)[0].retry.error


def test_one_that_is_ours_to_change_is_not_refused_and_an_adopted_one_is():
    adopted.refuse_adopted(Deployment(uid="d"), "scaled")
    with pytest.raises(Conflict, match="somebody else runs it"):
        adopted.refuse_adopted(made(), "scaled")
