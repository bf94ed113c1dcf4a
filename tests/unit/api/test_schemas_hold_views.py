"""The published shapes and the views say the same: every field, and no other."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from moorage.api import schemas
from moorage.control.scaling import scaling_object
from moorage.control.views import change_object, operation_object, tombstone_object
from moorage.control.views_gpus import Named, gpu_object
from moorage.control.views_running import machine_object, run_object, worker_object
from moorage.control.views_serving import Surroundings, deployment_object, replica_object, revision_object
from moorage.decide.scheduling.accounts import Holder, Kept, Line
from moorage.decide.serving.snapshot import Load
from moorage.domain.changes import HistoryRow
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import MachineState

WHY = reason("deploy.created")
FAILURE = {"reason": WHY.to_wire(), "exit_code": 1, "log": "x", "fatal": True, "at": 1.0}
GPU = {"index": 0, "vendor": "nvidia", "model": "H100", "memory_bytes": 80, "health": "ok"}
READY = MachineState.READY
ROW = HistoryRow("c.1", "Run", "r", "default", "r", "change", "Pending", "Running", WHY, "person:a", 1.0, 2, "r")
GRAVE: dict[str, Any] = {
    "uid": "d", "kind": "Run", "namespace": "n", "name": "r", "digest": None, "state": "Failed",
    "reason": WHY, "actor": "person:a", "at": 1.0,
}  # fmt: skip

SCALED = Deployment(
    uid="d",
    spec={"replicas": {"min": 1, "max": 3}, "scaling": {"slo": {"ttft_p95": 0.5}}},
    scaling={"desired": 2, "since": 1.0, "at": 2.0, "reason": reason("scale.up").to_wire(), "goodput": {"at": 1.0}},
)

VIEWS: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (schemas.Deployment, deployment_object(Deployment(uid="d"), Surroundings(), "http://g", 1.0)),
    (
        schemas.Deployment,
        deployment_object(Deployment(uid="d", reason=WHY, last_failure=FAILURE), Surroundings(), "http://g", 1.0),
    ),
    (schemas.Scaling, scaling_object(Deployment(uid="d"), None)),
    (schemas.Scaling, scaling_object(SCALED, Load(stable=1.0), [ROW])),
    (schemas.Revision, revision_object(Revision(uid="r", decisions=({"verdict": "ACCEPT"},)))),
    (schemas.Replica, replica_object(Replica(uid="p"), None, [], {})),
    (
        schemas.Replica,
        replica_object(
            Replica(uid="p", stopping={"why": "scaled", "since": 1.0}, machine="m"),
            Revision(uid="r"),
            [Worker(uid="w", machine="m", process={"pid": 1}, heartbeat_at=1.0)],
            {"m": Machine(uid="m", name="lab-1")},
        ),
    ),
    (schemas.Run, run_object(Run(uid="r"), [Worker(uid="w")])),
    (schemas.Worker, worker_object(Worker(uid="w"), {})),
    (schemas.Worker, worker_object(Worker(uid="w", stop={"cause": "user", "since": 1.0}, gpus=(0, 1)), {})),
    (schemas.Machine, machine_object(Machine(uid="m"), [], [gpu_object(Line(GPU, Holder.FREE), READY, Named())])),
    (schemas.MachineGpu, gpu_object(Line(GPU, Holder.HELD, "w", Worker(uid="w", process={"pid": 1})), READY, Named())),
    (
        schemas.MachineGpu,
        gpu_object(Line(GPU, Holder.RESERVED, kept=Kept("m", 0, "w", 2.0, "head"), until=2.0), READY, Named()),
    ),
    (schemas.Operation, operation_object(Operation(uid="o"))),
    (schemas.Operation, operation_object(Operation(uid="o", lease_owner="c", steps=({"name": "drain"},)), "gemma")),
    (schemas.Change, change_object(ROW)),
    (schemas.Tombstone, tombstone_object(GRAVE)),
]


@pytest.mark.parametrize(("model", "view"), VIEWS, ids=lambda v: getattr(v, "__name__", ""))
def test_a_view_has_exactly_the_published_fields(model: type[BaseModel], view: dict[str, Any]) -> None:
    model.model_validate(view)
    for field in view:
        with pytest.raises(ValidationError):
            model.model_validate({k: v for k, v in view.items() if k != field})
    with pytest.raises(ValidationError):
        model.model_validate({**view, "surprise": 1})
