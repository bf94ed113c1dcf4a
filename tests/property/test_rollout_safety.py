"""Safety of rollouts under arbitrary histories: applies, words of people, evidence, crashes, machines that are slow,
gateways that do not confirm, and a control plane that is killed anywhere.

After every event the invariants hold; in the end everything calms down, and what is left is one revision that serves at
its size, with nothing of any other on any machine.
"""

from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moorage.decide.serving.cycle import decide
from moorage.decide.serving.operation_commands import cancel
from moorage.decide.serving.phase import IN_PROMOTION, OPEN_OPERATION, desired_replicas
from moorage.decide.serving.rollout.closing import ENDED
from moorage.decide.serving.rollout.record import LIVE, rollout_of
from moorage.domain.errors import Conflict, NotFound, StaleVersion
from moorage.domain.nouns import Deployment, Operation, Replica, Revision, Worker
from moorage.domain.states import TERMINAL_REPLICA, DeploymentStatus, ReplicaStatus, RevisionState, WorkerState
from tests.examples import examples, phases
from tests.rollout_world import RolloutWorld
from tests.serving_world import spec

SIZES = st.sampled_from([1, 1, 2, 3])
LIVE_PARTS = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["none", "none", "header", "canary", "mirror"]),
        "steps": st.sampled_from([[50], [5, 50]]),
        "step_interval": st.just(60.0),
        "auto": st.sampled_from([True, True, False]),
        "capacity": st.sampled_from(["extra", "extra", "replace"]),
        "deadline": st.just(900.0),
    }
)
DIGESTS = st.sampled_from(["d1", "d2", "d3", "d4"])
PICK = st.integers(0, 20)


class Rollouts(RuleBasedStateMachine):
    """Events, and what must hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = RolloutWorld(machines=3)
        self.gone: dict[str, float] = {}
        """revisions that ended, and when that was first seen"""
        self.stale: Any = None
        """a decision that was made and not committed yet"""

    # Events

    @initialize(size=SIZES, rollout=LIVE_PARTS)
    def serves(self, size: int, rollout: dict[str, Any]) -> None:
        self.world.serve(replicas={"min": size, "max": size}, rollout=rollout)

    @rule(digest=DIGESTS, size=SIZES, rollout=LIVE_PARTS)
    def applied(self, digest: str, size: int, rollout: dict[str, Any]) -> None:
        document = spec(replicas={"min": size, "max": size}, rollout=rollout)
        document["runtime"] = {"runner": "process", "command": ["serve", digest]}
        self.tried(lambda: self.world.apply(document, digest))

    @rule(what=st.sampled_from(["promote", "reject", "rollback", "rollback"]))
    def ordered(self, what: str) -> None:
        self.tried(lambda: self.world.order(what))

    @rule(what=st.sampled_from(["pause", "wake"]))
    def switched(self, what: str) -> None:
        self.tried(lambda: self.world.command(what))

    @rule(pick=PICK)
    def cancelled(self, pick: int) -> None:
        open_ones = [o for o in self.world.of(Operation) if o.state in OPEN_OPERATION]
        if open_ones:
            operation = open_ones[pick % len(open_ones)]
            self.tried(lambda: self.world.commit(cancel(operation, self.world.now, actor="person:p").change))

    @rule(good=st.sampled_from([True, True, False]), few=st.booleans(), source=st.sampled_from(["synthetic", "gw/1"]))
    def measured(self, good: bool, few: bool, source: str) -> None:
        rollout = rollout_of(self.world.deployment)
        if rollout is None:
            return
        requests = 5 if few else 60
        for uid in (rollout.baseline, rollout.candidate):
            bad = not good and uid == rollout.candidate
            digest = self.world.rows[uid].digest  # type: ignore[attr-defined]  # a revision
            if self.world.revision(digest).uid == uid:
                self.world.met(digest, source, requests=requests, errors=requests // 2 if bad else 0)

    @rule()
    def placed(self) -> None:
        self.world.place()

    @rule(pick=PICK, ready=st.sampled_from([True, True, True, False]))
    def started(self, pick: int, ready: bool) -> None:
        waiting = [w for w in self.world.of(Worker) if w.state is WorkerState.PENDING and w.machine is not None]
        if waiting:
            worker = waiting[pick % len(waiting)]
            self.world.starts(worker)
            if ready:
                self.world.ready(self.world.rows[worker.uid])  # type: ignore[arg-type]  # a worker stays one

    @rule()
    def all_brought_up(self) -> None:
        self.world.bring_up()

    @rule(pick=PICK, code=st.sampled_from([0, 1, 137]))
    def crashed(self, pick: int, code: int) -> None:
        running = [w for w in self.world.of(Worker) if w.state is WorkerState.RUNNING]
        if running:
            self.world.exits(running[pick % len(running)], code)

    @rule()
    def stops_confirmed(self) -> None:
        for worker in self.world.of(Worker):
            if worker.state is WorkerState.STOPPING:
                self.world.stops(worker)

    @rule(pick=PICK)
    def streamed(self, pick: int) -> None:
        serving = [r for r in self.world.replicas if r.status is ReplicaStatus.RUNNING]
        self.world.in_flight = {serving[pick % len(serving)].uid: 1} if serving else {}

    @rule()
    def streams_ended(self) -> None:
        self.world.in_flight = {}

    @rule(confirmed=st.booleans(), held=st.sampled_from([0, 0, 1]))
    def gateways(self, confirmed: bool, held: int) -> None:
        self.world.confirmed, self.world.held = confirmed, held

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0, 400.0]))
    def time_passed(self, seconds: float) -> None:
        self.world.now += seconds
        for machine in self.world.of(type(self.world.rooms()[0].machine)):
            self.world.beat(machine)

    @rule()
    def decided(self) -> None:
        self.keeps_its_routes(self.one_decision)

    @rule()
    def killed_before_the_commit(self) -> None:
        """The decision is made and lost, with everything that was only in memory."""
        decide(self.world.snapshot(), self.world.ids)
        self.world.published = None

    @rule()
    def decision_held_back(self) -> None:
        self.stale = decide(self.world.snapshot(), self.world.ids)

    @precondition(lambda self: self.stale is not None)
    @rule()
    def late_commit(self) -> None:
        """By a control plane that was away for a while: it is carried out only if nothing of it has moved on."""
        before = self.world.deployment
        candidates = {r.uid: r.version for r in self.world.of(Revision)}
        try:
            self.world.commit(self.stale.change)
        except (StaleVersion, KeyError):
            assert self.world.deployment == before
        else:
            if self.world.deployment.active_revision != before.active_revision:
                promoted = self.world.deployment.active_revision
                assert self.world.rows[promoted or ""].version == candidates[promoted or ""] + 1
        self.stale = None

    @rule()
    def settled(self) -> None:
        self.keeps_its_routes(self.world.settle)

    # Help

    def tried(self, act: Any) -> None:
        with suppress(Conflict, NotFound):
            act()

    def one_decision(self) -> None:
        self.world.publish()
        self.world.step()

    def keeps_its_routes(self, act: Any) -> None:
        """The active revision keeps its routes until the very change that promotes."""
        world = self.world
        world.publish()
        before, active = self.targets(), world.deployment.active_revision
        size, capacity = desired_replicas(world.deployment), self.capacity()
        act()
        world.publish()
        same = world.deployment.active_revision == active and desired_replicas(world.deployment) == size
        if same and active and world.deployment.status is DeploymentStatus.CREATED and capacity == "extra":
            lost = before.get(active, set()) - self.targets().get(active, set())
            live = [r for r in lost if self.runs_well(r)]
            kept = [r for r in world.replicas if r.revision == active and r.stopping is None]
            assert not live or len(kept) >= size, f"{live} of the active revision lost their route"

    def capacity(self) -> str:
        return str(self.world.deployment.spec["rollout"]["capacity"])

    def runs_well(self, uid: str) -> bool:
        replica = self.world.rows[uid]
        assert isinstance(replica, Replica)
        worker = self.world.worker_of(replica)
        return worker.state is WorkerState.RUNNING and worker.ready

    def targets(self) -> dict[str, set[str]]:
        """Published replicas by revision."""
        out: dict[str, set[str]] = {}
        for target in self.world.published.targets if self.world.published else ():
            out.setdefault(target.replica.revision, set()).add(target.replica.uid)
        return out

    # What holds after each

    @invariant()
    def there_is_one_active_revision_and_at_most_one_candidate(self) -> None:
        if not self.world.of(Deployment):
            return
        deployment = self.world.deployment
        states = {r.uid: r.state for r in self.world.of(Revision)}
        assert [u for u, s in states.items() if s is RevisionState.ACTIVE] == [
            u for u in (deployment.active_revision,) if u
        ]
        moving = [u for u, s in states.items() if s in IN_PROMOTION]
        assert moving == [u for u in (deployment.candidate_revision,) if u and states[u] in IN_PROMOTION]
        if deployment.candidate_revision is not None and deployment.active_revision is not None:
            rollout = rollout_of(deployment)
            assert rollout is not None
            assert (rollout.candidate, rollout.baseline) == (deployment.candidate_revision, deployment.active_revision)

    @invariant()
    def requests_come_to_the_active_revision_and_to_a_candidate_only_as_its_strategy_says(self) -> None:
        if not self.world.of(Deployment):
            return
        deployment = self.world.deployment
        route = self.world.publish()
        rollout = rollout_of(deployment)
        allowed = {deployment.active_revision or deployment.candidate_revision}
        if rollout is not None and rollout.kind == "rollout" and rollout.strategy in LIVE:
            allowed.add(deployment.candidate_revision)
        assert route is not None
        assert {t.replica.revision for t in route.targets} <= allowed

    @invariant()
    def what_ended_gets_no_traffic_and_no_replica_ever_again(self) -> None:
        for revision in self.world.of(Revision):
            if revision.state in ENDED:
                since = self.gone.setdefault(revision.uid, self.world.now)
                later = [r for r in self.world.of(Replica) if r.revision == revision.uid and r.created_at > since]
                assert not later, f"{revision.name} is {revision.state} and got {later}"

    @invariant()
    def there_is_never_a_copy_too_many(self) -> None:
        """Started replicas: the size, and beside it the candidate's one, or the size again while it is promoted."""
        if not self.world.of(Deployment):
            return
        world, deployment = self.world, self.world.deployment
        lost = {w.run for w in world.of(Worker) if w.state is WorkerState.DOWN}
        counts: dict[str, int] = {}
        for replica in world.replicas:
            if replica.stopping is None and replica.run not in lost:
                counts[replica.revision] = counts.get(replica.revision, 0) + 1
        for uid, count in counts.items():
            assert count <= 3, f"{count} replicas of {uid} where at most 3 were ever asked for"
        candidate = world.rows.get(deployment.candidate_revision or "")
        if isinstance(candidate, Revision) and deployment.active_revision is not None:
            rollout = rollout_of(deployment)
            back = rollout is not None and rollout.kind == "rollback"
            if candidate.state in (RevisionState.PROVISIONING, RevisionState.CANDIDATE) and not back:
                newest = [r for r in world.replicas if r.revision == candidate.uid and r.stopping is None]
                assert len(newest) <= 3

    @invariant()
    def a_row_takes_only_steps_of_its_table_and_never_leaves_an_end(self) -> None:
        ended: set[str] = set()
        for uid, _, source, to, _ in self.world.history:
            if source is not None and source != to and to != "deleted" and uid.startswith("revision"):
                assert uid not in ended
                if to in ENDED:
                    ended.add(uid)

    # In the end

    def teardown(self) -> None:
        world = self.world
        if not world.of(Deployment):
            return
        world.confirmed, world.held, world.in_flight = True, 0, {}
        for _ in range(14):
            world.now += 61.0
            for machine in world.of(type(world.rooms()[0].machine)):
                world.beat(machine)
            world.settle()
            world.bring_up()
            self.measured(True, False, "synthetic")
            self.measured(True, False, "gw/1")
            world.settle()
            self.stops_confirmed()
            world.settle()
        self.tried(lambda: world.order("promote"))
        world.now += 1000.0
        for _ in range(4):
            world.settle()
            world.bring_up()
            self.stops_confirmed()
            world.settle()
        self.rests()

    def rests(self) -> None:
        world, deployment = self.world, self.world.deployment
        states = [r.state for r in world.of(Revision)]
        assert RevisionState.DRAINING not in states, "draining never ended"
        assert deployment.candidate_revision is None or deployment.active_revision is None, "a rollout never ended"
        assert not [o for o in world.of(Operation) if o.state in OPEN_OPERATION], "an operation never ended"
        for revision in world.of(Revision):
            left = [r for r in world.of(Replica) if r.revision == revision.uid and r.status not in TERMINAL_REPLICA]
            if revision.state in ENDED:
                assert revision.capacity_gone, f"{revision.name} is {revision.state} and not proven gone"
            if revision.uid != deployment.active_revision:
                assert not left, f"{revision.name} is {revision.state} and still has {left}"
        if deployment.status is DeploymentStatus.CREATED and deployment.active_revision is not None:
            assert world.sizes() == {world.active.digest: desired_replicas(deployment)}
            assert world.routed() == {world.active.digest}
            assert dict(deployment.spec["runtime"]) == dict(world.active.spec["runtime"])


Rollouts.TestCase.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    phases=phases(),
    suppress_health_check=list(HealthCheck),
)
test_rollouts_keep_their_promises = Rollouts.TestCase
