"""What is not ready says why: the replica, its deployment, and the run that is being stopped."""

from moorage.decide.serving.readiness import first_unready
from moorage.domain.nouns import Replica, Run, Worker
from moorage.domain.reasons import Reason, ReasonClass, reason
from moorage.domain.states import Phase, ReplicaStatus, WorkerState
from tests.serving_world import World, spec


def said(row: object) -> str:
    """The code of a row's reason."""
    why = getattr(row, "reason", None)
    assert isinstance(why, Reason)
    return why.code


def message(row: object) -> str:
    """The sentence of a row's reason."""
    why = getattr(row, "reason", None)
    assert isinstance(why, Reason)
    return why.message


def served() -> World:
    world = World()
    world.up(spec())
    return world


def starting() -> World:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.settle()
    return world


def fail_probes(world: World, worker: Worker) -> None:
    world.report(worker, ready=False, ready_why=reason("live.failing", n=3, error="status 500"))
    world.settle()


def not_yet(world: World, **seen: object) -> None:
    world.report(world.worker, ready=False, ready_why=reason("ready.waiting", path="/health", **seen))
    world.settle()


# A server that was ready and fails its probes


def test_a_replica_whose_probes_fail_says_so_and_not_that_it_is_ready() -> None:
    world = served()
    fail_probes(world, world.worker)
    (replica,) = world.replicas
    assert (replica.status, replica.routed, said(replica)) == (ReplicaStatus.RUNNING, False, "replica.withdrawn")
    assert "3 probes in a row failed: status 500" in message(replica)
    assert replica.routed_why == replica.reason.to_wire()  # type: ignore[union-attr]  # `said` looked


def test_its_deployment_carries_the_why_with_advice_and_stays_in_the_phase_of_the_contract() -> None:
    world = served()
    fail_probes(world, world.worker)
    why = world.deployment.reason
    assert why is not None
    assert (why.code, why.klass) == ("deploy.unready", ReasonClass.WAITING)
    assert why.message == "0 of 1 replicas ready: 3 probes in a row failed: status 500"
    assert why.advice
    assert world.phase is Phase.DEPLOYING
    assert first_unready(world.replicas) == world.replicas[0]


def test_when_the_probe_passes_again_both_say_ready_again() -> None:
    world = served()
    fail_probes(world, world.worker)
    world.ready(world.worker)
    world.settle()
    (replica,) = world.replicas
    assert (replica.routed, replica.routed_why, said(replica)) == (True, None, "replica.ready")
    assert message(world.deployment) == "1 of 1 replicas ready"
    assert first_unready(world.replicas) is None
    assert world.codes.count("replica.withdrawn") == 1
    assert world.codes.count("replica.routed") == 2


def test_while_another_replica_answers_the_deployment_says_which_hangs_and_the_replica_says_why() -> None:
    world = World()
    world.up(spec(replicas={"min": 2, "max": 2, "initial": 2}))
    first, second = world.replicas
    fail_probes(world, world.worker_of(second))
    assert message(world.deployment) == f"1 of 2 replicas ready: {second.name}: 3 probes in a row failed: status 500"
    unready = first_unready(world.replicas)
    assert unready is not None
    assert (unready.uid, said(unready)) == (second.uid, "replica.withdrawn")
    assert said(world.replicas[0]) == "replica.ready"
    assert world.replicas[0].uid == first.uid


def test_a_history_says_which_replica_died_and_how_until_another_is_ready_in_its_place() -> None:
    world = World()
    world.up(spec(replicas={"min": 2, "max": 2, "initial": 2}))
    second = world.replicas[1]
    world.exits(world.worker_of(second), 137)
    world.settle()
    told = f"1 of 2 replicas ready: {second.name} failed: Exited with code 137"
    assert message(world.deployment).startswith(told)
    world.settle()
    assert message(world.deployment).startswith(told)
    world.bring_up()
    assert message(world.deployment) == "2 of 2 replicas ready"


def test_a_history_says_how_the_only_replica_died() -> None:
    world = served()
    (replica,) = world.replicas
    world.exits(world.worker, 137)
    world.settle()
    assert message(world.deployment).startswith(f"0 of 1 replicas ready: {replica.name} failed: Exited with code 137")


def test_no_next_try_is_promised_to_one_that_never_served_and_fails_for_good() -> None:
    world = World()
    world.apply(spec(replicas={"min": 2, "max": 2, "initial": 2}))
    world.settle()
    world.place()
    first, second = world.of(Worker)
    for worker in (first, second):
        world.starts(worker)
        world.exits(worker, 1)
        world.settle()
    assert "deploy.retry" not in world.codes
    assert said(world.deployment) == "deploy.failed_fatal"


def test_a_replica_that_is_scaled_away_says_that_while_it_drains() -> None:
    world = World()
    world.up(spec(replicas={"min": 2, "max": 2, "initial": 2}))
    world.confirmed = False
    world.command("scale", low=1, high=1)
    world.settle()
    (stopping,) = [r for r in world.replicas if r.stopping is not None]
    assert (said(stopping), message(stopping)) == (
        "replica.withdrawn",
        "No requests are routed to it: scaled down",
    )


# A server that never gets ready


def test_a_server_that_is_not_ready_yet_says_what_it_answers() -> None:
    world = starting()
    assert said(world.replicas[0]) == "replica.starting"
    not_yet(world, status=503)
    told = "Its server does not answer /health as healthy yet (status 503)"
    assert (said(world.replicas[0]), message(world.replicas[0])) == ("replica.not_ready", f"Not ready yet: {told}")
    assert message(world.deployment) == f"0 of 1 replicas ready: {told}"
    assert world.phase is Phase.LOADING_MODEL
    not_yet(world, error="connection refused")
    assert message(world.deployment).endswith("as healthy yet: connection refused")


def test_the_same_answer_again_writes_nothing() -> None:
    world = starting()
    not_yet(world, status=503)
    before = [r.version for r in (world.deployment, *world.replicas)]
    not_yet(world, status=503)
    assert [r.version for r in (world.deployment, *world.replicas)] == before


def test_a_report_that_comes_with_the_last_step_is_told_by_that_very_step() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.starts(world.worker)
    world.report(world.worker, ready=False, ready_why=reason("ready.waiting", path="/health", status=503))
    world.settle()
    assert said(world.replicas[0]) == "replica.not_ready"
    assert "replica.starting" not in world.codes


def test_once_ready_nothing_of_the_waiting_is_left() -> None:
    world = starting()
    not_yet(world, status=503)
    world.ready(world.worker)
    world.settle()
    assert (said(world.replicas[0]), message(world.deployment)) == ("replica.ready", "1 of 1 replicas ready")


def test_a_replica_that_fits_nowhere_says_so_until_it_is_placed() -> None:
    world = World(capacity={"cpu_milli": 100})
    world.apply(spec(resources={"cpu": 1.0}))
    world.settle()
    world.place()
    world.settle()
    assert said(world.replicas[0]) == "replica.queued"
    why = world.replicas[0].reason
    assert why is not None
    assert message(world.deployment) == f"0 of 1 replicas ready: {why.params['why']}"
    world.add_machine("large")
    world.place()
    world.settle()
    assert said(world.replicas[0]) == "replica.created"
    assert message(world.deployment) == "0 of 1 replicas ready"


def test_the_first_unready_replica_is_that_of_the_lowest_ordinal_and_never_one_that_is_stopping() -> None:
    why = reason("replica.withdrawn", why="x")
    rows = [
        Replica(uid="a", ordinal=0, status=ReplicaStatus.RUNNING, reason=why, stopping={"code": "replica.stopped"}),
        Replica(uid="b", ordinal=2, status=ReplicaStatus.RUNNING, reason=why),
        Replica(uid="c", ordinal=1, status=ReplicaStatus.RUNNING, reason=why),
        Replica(uid="d", ordinal=0, status=ReplicaStatus.FAILED, reason=why),
    ]
    found = first_unready(rows)
    assert found is not None
    assert found.uid == "c"


# A wait for the next try, and a stop


def test_a_wait_for_the_next_try_names_the_failure_and_is_not_told_once_it_is_over() -> None:
    world = served()
    for _ in range(2):
        world.exits(world.worker_of(world.replicas[-1]), 3)
        world.settle()
        world.bring_up()
    world.exits(world.worker_of(world.of(Replica)[-1]), 3)
    world.settle()
    assert said(world.deployment) == "deploy.retry"
    assert message(world.deployment).startswith("Its last replica failed: Exited with code 3; the next try is at ")
    assert world.deployment.retry_at is not None
    world.now = world.deployment.retry_at
    world.settle()
    assert said(world.deployment) != "deploy.retry"


def test_a_run_that_is_being_stopped_says_so() -> None:
    world = served()
    world.command("stop")
    world.settle()
    assert world.worker.state is WorkerState.STOPPING
    (run,) = world.of(Run)
    assert (run.state, said(run)) == ("Pending", "run.stopping")
    assert message(run).startswith(f"Stopping: its machine ends {world.worker.name} (")


def test_a_run_that_is_stopped_before_it_ran_says_so_too() -> None:
    world = World()
    world.apply()
    world.settle()
    world.place()
    world.report(world.worker, "Preparing:picked_up:prepare.started")
    world.settle()
    world.command("stop")
    world.settle()
    assert world.worker.state is WorkerState.STOPPING
    assert said(world.of(Run)[0]) == "run.stopping"
