"""Each row of the drift table: what was found beside what was meant, and nothing on a guess."""

from dataclasses import replace

import pytest

from moorage.decide.providers.drift import SETTLING_S, Drift, Intent, MachineLook, Observed, compare
from moorage.decide.providers.identity import Identity, identity_of
from moorage.domain.nouns import Run, Worker

NOW = 10_000.0
INTENT = Intent("wrk-1", 3, "dep-1/rev-1/0/2", "d1", "mch-1", "Deployment", "default/gemma", since=NOW - 600.0)
THING = Observed("mch-1", "pid:7", "wrk-1", 3, "dep-1/rev-1/0/2", "d1", proven=True, alive=True, observed_at=NOW)
WHOLE = MachineLook("mch-1", NOW)


def only(intents=(INTENT,), observed=(THING,), looks=(WHOLE,), tombstones=()):
    (finding,) = compare(intents, observed, looks, tombstones).findings
    return finding


def test_the_exact_identity_and_digest_is_adopted():
    assert (only().drift, only().thing, only().intent) == (Drift.ADOPT, THING, INTENT)


def test_what_is_missing_from_a_complete_inventory_is_created_again():
    assert only(observed=()).drift is Drift.CREATE


@pytest.mark.parametrize("change", [{"alive": False}, {"healthy": False}])
def test_the_same_identity_with_other_health_is_kept(change):
    assert only(observed=(replace(THING, **change),)).drift is Drift.KEEP


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "d2"},
        {"identity": "dep-2/rev-1/0/2"},
        {"identity": "dep-1/rev-2/0/2"},
        {"identity": "dep-1/rev-1/1/2"},
        {"proven": False},
    ],
)
def test_a_name_that_matches_with_another_digest_owner_revision_or_ordinal_needs_a_person(change):
    found = only(observed=(replace(THING, **change),))
    assert found.drift is Drift.NEEDS_ATTENTION
    assert next(iter(str(v) for v in change.values())) in found.why or "proven" in found.why


def test_what_is_gone_while_an_operation_is_at_work_pauses_it():
    found = only(intents=(replace(INTENT, operation="op-9"),), observed=())
    assert found.drift is Drift.PAUSE
    assert "op-9" in found.why


@pytest.mark.parametrize("looks", [(), (MachineLook("mch-1", NOW, "docker does not answer"),)])
def test_an_inventory_that_is_partial_or_missing_leads_to_nothing_but_another_look(looks):
    assert only(observed=(), looks=looks).drift is Drift.READ_ONLY


def test_absence_just_after_the_start_was_ordered_proves_nothing():
    look = MachineLook("mch-1", INTENT.since + SETTLING_S - 1.0)
    assert only(observed=(), looks=(look,)).drift is Drift.READ_ONLY


def test_an_older_placement_beside_the_one_that_is_meant_is_ours_to_remove():
    older = replace(THING, epoch=2, resource="pid:6")
    found = compare((INTENT,), (older, THING), (WHOLE,), ()).findings
    assert [(f.thing.resource, f.drift) for f in found] == [("pid:6", Drift.LATE), ("pid:7", Drift.ADOPT)]


def test_what_is_to_end_is_late_while_it_is_seen_and_nothing_once_it_is_gone():
    ending = replace(INTENT, wanted=False)
    assert only(intents=(ending,)).drift is Drift.LATE
    assert compare((ending,), (), (WHOLE,), ()).findings == ()


def test_a_late_arrival_of_something_deleted_matches_its_tombstone():
    assert only(intents=(), tombstones=("wrk-1",)).drift is Drift.LATE


def test_what_nothing_means_is_an_orphan():
    assert only(intents=()).drift is Drift.ORPHAN


def test_what_only_says_that_it_is_ours_is_never_ours_to_remove():
    assert only(intents=(), observed=(replace(THING, proven=False),), tombstones=("wrk-1",)).drift is Drift.ORPHAN


def test_the_same_worker_seen_on_another_machine_is_not_taken_for_the_one_that_is_meant():
    elsewhere = replace(THING, machine="mch-2")
    looks = (WHOLE, MachineLook("mch-2", NOW))
    found = compare((INTENT,), (elsewhere,), looks, ("wrk-1",)).findings
    assert {f.drift for f in found} == {Drift.CREATE, Drift.LATE}


def test_every_machine_that_did_not_tell_everything_is_named():
    looks = (WHOLE, MachineLook("mch-2", 0.0, "it is Down"))
    compared = compare((INTENT,), (THING,), looks, ())
    assert (compared.complete, compared.incomplete) == (False, {"mch-2": "it is Down"})


@pytest.mark.parametrize("member", [0, 3])
def test_an_identity_is_read_back_from_its_text(member):
    identity = Identity("dep-1", "rev-1", 2, 5, member)
    assert Identity.parse(identity.text) == identity


@pytest.mark.parametrize("text", ["", "dep-1/rev-1/0", "dep-1/rev-1/x/1", "/rev-1/0/1", "a/b/1/2/3/4"])
def test_any_other_text_is_no_identity(text):
    assert Identity.parse(text) is None


def test_a_namesake_has_another_identity():
    def named(deployment):
        run = Run(
            uid="run-1",
            name="gemma-0-1",
            deployment=deployment,
            spec={"replica": {"revision": "rev-1", "ordinal": 0, "attempt": 1}},
        )
        return identity_of(run, Worker(uid="wrk-1", run="run-1")).text

    assert named("dep-1") != named("dep-2")


def test_the_same_intent_has_the_same_identity_whoever_asks():
    run = Run(uid="run-1", spec={})
    worker = Worker(uid="wrk-1", run="run-1", group="actor", rank=4, attempt=2)
    assert identity_of(run, worker) == identity_of(run, worker) == Identity("run-1", "actor", 4, 2)
