"""Rows as API objects: times, reasons, phases, holders; pure."""

import json
from dataclasses import replace

import pytest

from moorage.control.gateways import Aside
from moorage.control.views import change_object, document, iso, operation_object, plain, tombstone_object
from moorage.control.views_gpus import Named, gpu_object
from moorage.control.views_running import machine_object, run_object, worker_counts, worker_object
from moorage.control.views_serving import (
    CRASH_LOOP_FAILURES,
    Surroundings,
    deployment_object,
    endpoint_name,
    open_operation,
    replica_object,
    revision_object,
)
from moorage.decide.scheduling.accounts import Holder, Kept, Line
from moorage.decide.serving.snapshot import Demand
from moorage.domain.changes import HistoryRow
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import (
    DeploymentStatus,
    MachineState,
    OperationState,
    ReplicaStatus,
    RevisionState,
    WorkerState,
)

GATEWAY = "http://127.0.0.1:7421"
AT = 1_795_976_400.1236


def shown(row: Deployment, around: Surroundings | None = None) -> dict[str, object]:
    return deployment_object(row, around or Surroundings(), GATEWAY, now=AT)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (None, None),
        (0.0, "1970-01-01T00:00:00.000Z"),
        (AT, "2026-11-29T18:20:00.124Z"),
        (1.9996, "1970-01-01T00:00:02.000Z"),
    ],
)
def test_times_are_utc_with_milliseconds_rounded_and_null_when_absent(at: float | None, text: str | None) -> None:
    assert iso(at) == text


def test_times_inside_stored_maps_become_text_and_params_and_specs_stay() -> None:
    stored = {
        "since": 0.0,
        "exit_code": 1,
        "reason": reason("restart.backoff", at=5.0).to_wire(),
        "list": ({"at": 0.0},),
    }
    told = plain(stored)
    assert told["since"] == "1970-01-01T00:00:00.000Z"
    assert told["list"] == [{"at": "1970-01-01T00:00:00.000Z"}]
    assert told["reason"]["params"] == {"at": 5.0}
    assert document({"env": {"at": 1, "since": True}, "args": (1, 2)}) == {
        "env": {"at": 1, "since": True},
        "args": [1, 2],
    }


def test_every_view_is_json_even_of_a_row_with_nothing_in_it() -> None:
    row = HistoryRow(
        "c.1", "Run", "r", "default", "r", "note", None, None, reason("run.created"), "person:a", AT, 1, "r"
    )
    views = [
        shown(Deployment(uid="d")),
        revision_object(Revision(uid="r")),
        replica_object(Replica(uid="p"), None, [], {}),
        run_object(Run(uid="r"), []),
        worker_object(Worker(uid="w"), {}),
        machine_object(Machine(uid="m"), []),
        operation_object(Operation(uid="o")),
        change_object(row),
    ]
    for view in views:
        assert json.loads(json.dumps(view)) == view


def test_a_replica_tells_which_gateways_put_it_aside_and_what_is_in_flight_there() -> None:
    row = Replica(uid="p", routed=True)
    bad = Aside("g-1", "p", "unreachable", 2.0)
    kept, other = Aside("g-2", "p", "kept_bad", None), Aside("g-2", "q", "unreachable", 2.0)
    demand = Demand(by_replica={"p": 3}, gateways={"g-1": True, "g-2": True})
    told = replica_object(row, None, [], {}, demand=demand, aside=[bad, kept, other])
    assert told["put_aside"] == {"by": [bad.to_wire()], "gateways": 2}
    assert told["in_flight"] == 3
    assert replica_object(row, None, [], {}, demand=demand, aside=[kept, other])["put_aside"] is None
    assert replica_object(row, None, [], {}, demand=replace(demand, known=False))["in_flight"] is None


def test_an_operation_that_stops_makes_the_deployment_deactivating_and_is_the_one_shown() -> None:
    row = Deployment(uid="d", operation="o-2")
    apply = Operation(uid="o-1", target="d", operation="apply", state=OperationState.SUCCEEDED, created_at=9.0)
    stop = Operation(uid="o-2", target="d", operation="stop", state=OperationState.RUNNING, created_at=1.0)
    told = shown(row, Surroundings(operations=[apply, stop]))
    assert (told["operation"], told["phase"]) == ("o-2", "DEACTIVATING")
    over = replace(stop, state=OperationState.SUCCEEDED)
    told = shown(row, Surroundings(operations=[apply, over]))
    assert told["operation"] == "o-1"


def test_operations_of_another_deployment_are_never_its_own() -> None:
    other = Operation(uid="o", target="e", operation="delete", state=OperationState.RUNNING)
    row = Deployment(uid="d")
    assert open_operation(row, [other]) is None
    assert shown(row, Surroundings(operations=[other]))["operation"] is None


def test_a_replica_counts_as_serving_only_while_it_is_routed() -> None:
    row = Deployment(uid="d", spec={"replicas": {"min": 1}})
    withdrawn = Replica(uid="p", deployment="d", status=ReplicaStatus.RUNNING, routed=False)
    told = shown(row, Surroundings(replicas=[withdrawn]))
    assert (told["serving"], told["current_replicas"], told["ready_replicas"]) == (False, 1, 0)
    told = shown(row, Surroundings(replicas=[replace(withdrawn, routed=True)]))
    assert (told["serving"], told["ready_replicas"], told["phase"]) == (True, 1, "ACTIVE")


def test_a_candidate_beside_an_active_revision_is_a_promotion_in_progress() -> None:
    row = Deployment(uid="d", active_revision="r1", candidate_revision="r2")
    revisions = [Revision(uid="r2", state=RevisionState.EVALUATING)]
    assert shown(row, Surroundings(revisions=revisions))["promotion_in_progress"] is True
    rejected = [Revision(uid="r2", state=RevisionState.REJECTED)]
    assert shown(row, Surroundings(revisions=rejected))["promotion_in_progress"] is False


def test_the_last_failure_keeps_exit_code_log_and_time() -> None:
    failure = {"reason": reason("exited", code=3).to_wire(), "exit_code": 3, "log": "a\nb", "fatal": True, "at": AT}
    row = Deployment(
        uid="d", status=DeploymentStatus.FAILED, last_failure=failure, failures_in_row=CRASH_LOOP_FAILURES, retry_at=AT
    )
    told = shown(row)
    assert told["last_failure"] == {**failure, "at": "2026-11-29T18:20:00.124Z"}
    assert (told["crash_looping"], told["retry_at"]) == (True, "2026-11-29T18:20:00.124Z")
    assert shown(replace(row, failures_in_row=1))["crash_looping"] is False


def test_the_model_name_outside_the_default_namespace_has_the_namespace_in_it() -> None:
    assert endpoint_name(Deployment(uid="d", name="gemma")) == "gemma"
    assert endpoint_name(Deployment(uid="d", name="gemma", namespace="red")) == "red/gemma"


def test_an_inventory_is_complete_only_while_every_machine_of_the_replica_is_ready() -> None:
    worker = Worker(uid="w", machine="m", heartbeat_at=AT, process={"pid": 7})
    machine = Machine(uid="m", name="lab-1", state=MachineState.READY)
    row = Replica(uid="p", deployment="d", revision="r", ordinal=1, attempt=2)
    revision = Revision(uid="r", digest="sha256:1", spec={"provider": "fleet"})
    told = replica_object(row, revision, [worker], {"m": machine})["provider"]
    assert told["inventory_complete"] is True
    assert told["resource_id"] == {"pid": 7}
    assert told["digest"] == "sha256:1"
    down = replace(machine, state=MachineState.DOWN)
    assert replica_object(row, revision, [worker], {"m": down})["provider"]["inventory_complete"] is False
    assert replica_object(row, revision, [], {})["provider"]["inventory_complete"] is False


def test_worker_counts_name_every_state_and_sum_to_the_total() -> None:
    workers = [Worker(uid=str(i), state=s) for i, s in enumerate(WorkerState)]
    counts = worker_counts(workers)
    assert counts["total"] == len(WorkerState)
    assert counts["ready_to_start"] == counts["failed"] == counts["completed"] == 1
    assert counts["running"] == 2, "Running and Stale"


GPU = {"index": 0, "vendor": "nvidia", "model": "H100", "memory_bytes": 80, "health": "ok"}
HELD = Line(GPU, Holder.HELD, "w-1", Worker(uid="w-1", process={"pid": 7}), since=0.0)
KEPT = Line(GPU, Holder.RESERVED, kept=Kept("m", 0, "w-1", 5.0, "restart"), until=5.0)


def test_a_gpu_shows_who_holds_it_as_which_process_and_since_when() -> None:
    names = Named({"w-1": Worker(uid="w-1", name="train-0", namespace="lab")})
    told = gpu_object(HELD, MachineState.READY, names)
    assert (told["holder"], told["worker"], told["work"], told["namespace"]) == ("held", "w-1", "train-0", "lab")
    assert (told["process"], told["since"], told["until"]) == ({"pid": 7}, "1970-01-01T00:00:00.000Z", None)
    kept = gpu_object(KEPT, MachineState.READY, names)
    assert (kept["holder"], kept["worker"], kept["reserved_for"], kept["work"]) == ("reserved", None, "w-1", "train-0")


@pytest.mark.parametrize("line", [HELD, KEPT], ids=["held", "reserved"])
@pytest.mark.parametrize("known", [True, False], ids=["its row is there", "its row is gone"])
def test_of_work_that_one_has_no_rights_in_nothing_is_told_but_that_it_is_there(line: Line, known: bool) -> None:
    rows = {"w-1": Worker(uid="w-1", name="train-0", namespace="lab")} if known else {}
    told = gpu_object(line, MachineState.READY, Named(rows, lambda namespace: namespace == "mine"))
    assert told["work"] == "work in another namespace"
    assert {told["worker"], told["namespace"], told["reserved_for"], told["process"]} == {None}
    assert "w-1" not in json.dumps(told)
    assert "train" not in json.dumps(told)


def test_of_a_lost_machine_nobody_knows_how_its_gpus_are() -> None:
    assert gpu_object(Line(GPU, Holder.FREE), MachineState.DOWN, Named())["health"] == "unknown"


def test_what_is_held_of_a_machine_is_summed() -> None:
    holding = {"machine": "m", "worker": "w-1", "epoch": 1, "gpus": [1], "cpu_milli": 2000, "memory_bytes": 5}
    told = machine_object(Machine(uid="m"), [holding])
    assert told["allocated"] == {"cpu_milli": 2000, "memory_bytes": 5, "gpus": 1}


def test_a_machine_is_called_by_its_name_and_by_its_uid_once_it_is_gone() -> None:
    row = Worker(uid="w", machine="mch-1")
    assert worker_object(row, {"mch-1": Machine(uid="mch-1", name="lab-1")})["machine"] == "lab-1"
    assert worker_object(row, {})["machine"] == "mch-1"
    assert worker_object(Worker(uid="w"), {})["machine"] is None


def test_a_tombstone_says_what_it_was_and_why_it_went() -> None:
    why = reason("deploy.deleted")
    kept = {
        "uid": "d", "kind": "Deployment", "namespace": "default", "name": "gemma", "digest": "sha256:1",
        "state": "stopped", "reason": why, "actor": "person:a", "at": 0.0,
    }  # fmt: skip
    told = tombstone_object(kept)
    assert (told["id"], told["deleted"], told["deleted_at"]) == ("d", True, "1970-01-01T00:00:00.000Z")
    assert told["reason"] == why.to_wire()
    assert tombstone_object({**kept, "reason": why.to_wire()}) == told


def test_the_tombstone_of_a_run_says_whether_it_stood_behind_a_replica_and_of_which_deployment() -> None:
    kept = {
        "uid": "r", "kind": "Run", "namespace": "default", "name": "gemma-0-1", "digest": None, "state": "Pending",
        "reason": reason("run.deleted", deployment="gemma"), "actor": "controller:serving", "at": 0.0,
    }  # fmt: skip
    told = tombstone_object(kept)
    assert (told["deployment"], told["reason"]["message"]) == ("gemma", "Deleted with its deployment gemma")
    assert tombstone_object({**kept, "reason": reason("run.deleted", by="person:ann")})["deployment"] is None


def test_a_tombstone_names_who_asked_and_not_the_controller_that_carried_it_out() -> None:
    kept = {
        "uid": "d", "kind": "Deployment", "namespace": "default", "name": "gemma", "digest": None, "state": "stopped",
        "reason": reason("deploy.deleted", by="person:ann"), "actor": "controller:serving", "at": 0.0,
    }  # fmt: skip
    told = tombstone_object(kept)
    assert told["actor"] == "person:ann"
    assert told["reason"]["message"] == "Deleted by person:ann"
    assert tombstone_object({**kept, "reason": reason("run.deleted")})["actor"] == "controller:serving"
