"""Every combination of what a candidate can be, what is ready, what was measured and what a person said: one decision.

The expectation is written down as a table of its own, shorter than the code and from the contract alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.cycle import decide
from moorage.decide.serving.snapshot import Demand, ServingSnapshot
from moorage.domain.changes import Change, Update
from moorage.domain.nouns import Deployment, Replica, Revision, Run, Worker
from moorage.domain.states import ReplicaStatus, RevisionState, RunState, WorkerState
from tests.memory_rows import START, CountedIds, MemoryRows
from tests.rollout_world import seen
from tests.serving_world import spec

S = RevisionState
EVIDENCE = {"none": {}, "good": {"synthetic": seen()}, "bad": {"synthetic": seen(errors=35)}}


@dataclass(frozen=True)
class Case:
    """One row: states, sizes and words."""

    state: RevisionState
    size: int
    active_ready: int
    candidate_ready: int
    evidence: str
    word: str | None
    strategy: str
    steps_over: bool
    auto: bool
    late: bool


def cases() -> Iterator[Case]:
    for case in product(
        (S.CANDIDATE, S.PROVISIONING, S.EVALUATING, S.PROMOTING),
        (1, 2),
        (0, 1, 2),
        (0, 1, 2),
        EVIDENCE,
        (None, "promote"),
        ("none", "canary"),
        (False, True),
        (False, True),
        (False, True),
    ):
        row = Case(*case)
        if row.active_ready > row.size or row.candidate_ready > (row.size if row.state is S.PROMOTING else 1):
            continue
        if row.state is S.CANDIDATE and row.candidate_ready:
            continue  # nothing of it was asked for yet
        if row.steps_over and row.strategy != "canary":
            continue  # it has no steps
        if row.late and (row.word, row.strategy, row.auto) != (None, "none", True):
            continue  # too late is looked at first
        yield row


def expected(case: Case) -> RevisionState:
    """What the contract makes of it."""
    if case.late:
        return S.FAILED
    if not case.candidate_ready:
        return S.PROVISIONING
    verdict = {"none": "WAIT", "good": "ACCEPT", "bad": "REJECT"}[case.evidence] if case.active_ready else "ACCEPT"
    carries = case.candidate_ready >= max(1, min(case.size, case.active_ready))
    if case.word == "promote":
        return S.ACTIVE if carries else S.PROMOTING
    if verdict == "REJECT":
        return S.REJECTED
    if case.state is S.PROMOTING:
        stale = verdict == "WAIT"
        return (S.EVALUATING if stale else S.ACTIVE) if carries else S.PROMOTING
    waits = case.strategy == "canary" and case.active_ready > 0 and not case.steps_over
    if verdict == "WAIT" or waits or not case.auto:
        return S.EVALUATING
    return S.ACTIVE if carries else S.PROMOTING


def snapshot(case: Case) -> ServingSnapshot:
    """The rows of one case, made by hand."""
    live = {"strategy": case.strategy, "auto": case.auto, "steps": [50], "step_interval": 60.0}
    document = spec(replicas={"min": case.size, "max": case.size}, rollout=live)
    rollout = {
        "candidate": "cand",
        "baseline": "act",
        "strategy": case.strategy,
        "since": START - 100.0,
        "step_since": START - (60.0 if case.steps_over else 10.0),
        "weight": 50 if case.strategy == "canary" else 0,
        "deadline": START - 1.0 if case.late else START + 1000.0,
        "evidence_id": "cand/0",
        "numbers": {"act": 1, "cand": 2},
    }
    deployment = Deployment(
        uid="dep",
        name="gemma",
        spec=document,
        active_revision="act",
        candidate_revision="cand",
        revision_count=2,
        initial_scale_reached=True,
        ever_ready=True,
        first_ready_at=START,
        rollout=rollout,
    )
    word = {"word": case.word} if case.word else None
    common: dict[str, Any] = {"deployment": "dep", "spec": {"model": {"id": "gemma"}}}
    evidence = EVIDENCE["none"] if case.evidence == "none" else {"synthetic": seen()}
    active = Revision(uid="act", name="gemma-1", state=S.ACTIVE, evidence=evidence, **common)
    candidate = Revision(
        uid="cand",
        name="gemma-2",
        number=2,
        state=case.state,
        evidence=EVIDENCE[case.evidence],
        verdict=word,
        initial_scale_reached=case.candidate_ready > 0,
        **common,
    )
    replicas, runs, workers = [], {}, {}
    wanted = case.size if case.state is S.PROMOTING else (0 if case.state is S.CANDIDATE else 1)
    for uid, ready, count in (("act", case.active_ready, case.size), ("cand", case.candidate_ready, wanted)):
        for ordinal in range(count):
            replica, run, worker = _replica(uid, ordinal, ordinal < ready)
            replicas.append(replica)
            runs[run.uid] = run
            workers[run.uid] = (worker,)
    targets = frozenset(r.uid for r in replicas if r.routed)
    demand = Demand(published_mode="serve", published_targets=targets, confirmed=True)
    return ServingSnapshot(START, deployment, (active, candidate), tuple(replicas), runs, workers, (), demand)


def _replica(revision: str, ordinal: int, ready: bool) -> tuple[Replica, Run, Worker]:
    name = f"{revision}-{ordinal}"
    routed = ready and revision == "act"
    kept_back = {"code": "replica.candidate"} if ready and not routed else None
    replica = Replica(
        uid=f"rep-{name}",
        deployment="dep",
        revision=revision,
        ordinal=ordinal,
        run=f"run-{name}",
        status=ReplicaStatus.RUNNING if ready else ReplicaStatus.PENDING,
        routed=routed,
        routed_why=kept_back,
        ready_at=START if ready else None,
    )
    run = Run(uid=f"run-{name}", state=RunState.RUNNING if ready else RunState.PENDING, replica=replica.uid)
    worker = Worker(
        uid=f"wor-{name}",
        run=run.uid,
        deployment="dep",
        state=WorkerState.RUNNING if ready else WorkerState.PENDING,
        ready=ready,
        address="127.0.0.1:1" if ready else None,
        machine="m" if ready else None,
        handed_over=ready,
    )
    return replica, run, worker


@cache
def outcome(case: Case) -> tuple[MemoryRows, Change | None]:
    """The decision on one case, carried out; made once for all tests here."""
    given = snapshot(case)
    change = decide(given, CountedIds()).change
    return carried_out(given, change), change


def carried_out(given: ServingSnapshot, change: Change | None) -> MemoryRows:
    """The rows after the change."""
    world = MemoryRows()
    world.rows = {r.uid: r for r in given.rows()}
    world.commit(change)
    return world


def test_every_combination_comes_to_what_the_contract_says() -> None:
    seen_states = set()
    for case in cases():
        world, _ = outcome(case)
        candidate = next(r for r in world.of(Revision) if r.uid == "cand")
        active = next(r for r in world.of(Revision) if r.uid == "act")
        assert candidate.state is expected(case), case
        seen_states.add((case.state, candidate.state))
        (deployment,) = world.of(Deployment)
        if candidate.state is S.ACTIVE:
            assert (deployment.active_revision, deployment.candidate_revision) == ("cand", None), case
            assert active.state in (S.DRAINING, S.SUPERSEDED), case
        else:
            assert (deployment.active_revision, active.state) == ("act", S.ACTIVE), case
            kept = [r for r in world.of(Replica) if r.revision == "act" and r.routed]
            assert len(kept) == case.active_ready, case
    assert len(seen_states) >= 15


def test_no_combination_starts_a_replica_too_many() -> None:
    for case in cases():
        world, _ = outcome(case)
        counts = dict.fromkeys(("act", "cand"), 0)
        for replica in world.of(Replica):
            counts[replica.revision] += replica.stopping is None
        candidate = next(r for r in world.of(Revision) if r.uid == "cand").state
        most = {S.PROVISIONING: 1, S.EVALUATING: 1, S.PROMOTING: case.size, S.ACTIVE: case.size}.get(candidate, 0)
        assert counts["cand"] <= most, case
        assert counts["act"] == (0 if candidate is S.ACTIVE else case.size), case


def test_every_change_compares_what_it_was_decided_on() -> None:
    """A promotion writes the deployment and both revisions, with the versions that it saw."""
    for case in cases():
        if expected(case) is not S.ACTIVE:
            continue
        _, change = outcome(case)
        assert change is not None
        assert {"dep", "act", "cand"} <= {w.uid for w in change.writes if isinstance(w, Update)}, case


def test_a_decision_made_twice_is_the_same() -> None:
    for case in cases():
        if case.size == 1 and case.candidate_ready:
            assert decide(snapshot(case), CountedIds()).change == outcome(case)[1], case


def test_a_draft_that_is_thrown_away_has_changed_nothing() -> None:
    case = next(c for c in cases() if expected(c) is S.ACTIVE)
    given = snapshot(case)
    before = tuple(repr(r) for r in given.rows())
    decide(given, CountedIds())
    assert tuple(repr(r) for r in given.rows()) == before
    assert list(Draft(given.rows(), START, "x").of(Deployment)) == [given.deployment]
