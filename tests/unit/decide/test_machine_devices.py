"""What follows when a machine tells of its GPUs and of what it is short of."""

from moorage.decide.running.devices import told, worker_updates
from moorage.domain.nouns import Machine, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import WorkerState


def gpu(index, **more):
    return {"index": index, "vendor": "nvidia", "model": "H100", "memory_bytes": 80, "health": "ok", **more}


def machine(*gpus, **fields):
    return Machine(uid="m", capacity={"cpu_milli": 1000, "gpus": list(gpus)}, **fields)


def codes(found):
    return [note.code for note in found.notes]


FAULTY = {"health": "faulty", "fault": "Xid 79"}


def test_the_same_told_again_is_no_news():
    row = machine(gpu(0), gpu(1, **FAULTY), pressure=("disk",))
    found = told(row, [gpu(0), gpu(1, **FAULTY)], ("disk",))
    assert (found.fields, found.notes, found.concerns_workers) == ({}, (), False)


def test_each_change_of_a_gpu_is_one_line_of_history_and_the_rest_of_the_capacity_stays():
    row = machine(gpu(0), gpu(1), gpu(2), gpu(3, **FAULTY))
    after = [gpu(0, **FAULTY), gpu(1, foreign_bytes=5 << 30, foreign_pids=[7]), gpu(2, health="at_risk", fault="rows")]
    found = told(row, [*after, gpu(3)], None)
    assert codes(found) == ["machine.gpu_faulty", "machine.gpu_foreign", "machine.gpu_at_risk", "machine.gpu_ok"]
    assert found.notes[1].params == {"index": 1, "bytes": 5 << 30, "pids": [7]}
    assert found.fields["capacity"] == {"cpu_milli": 1000, "gpus": [*after, gpu(3)]}
    assert (found.faulty, found.well) == ({0: "Xid 79"}, frozenset({3}))


def test_a_strangers_growth_is_kept_and_is_no_line_of_history():
    row = machine(gpu(0, foreign_bytes=1 << 30))
    found = told(row, [gpu(0, foreign_bytes=2 << 30)], None)
    assert codes(found) == []
    assert found.fields["capacity"]["gpus"][0]["foreign_bytes"] == 2 << 30


def test_a_gpu_that_is_not_reported_any_more_is_told_as_faulty():
    found = told(machine(gpu(0), gpu(1)), [gpu(0)], None)
    assert codes(found) == ["machine.gpu_faulty"]
    assert list(found.faulty) == [1]


def test_gpus_of_a_machine_that_had_none_are_news_only_where_something_is_wrong():
    found = told(Machine(uid="m"), [gpu(0), gpu(1, **FAULTY)], None)
    assert codes(found) == ["machine.gpu_faulty"]


def test_pressure_is_told_when_it_begins_and_when_it_is_over():
    found = told(machine(pressure=("disk",)), None, ("memory",))
    assert codes(found) == ["machine.pressure", "machine.pressure_over"]
    assert found.fields == {"pressure": ("memory",)}


def test_a_worker_whose_gpu_fails_is_told_so_and_nothing_is_stopped():
    news = told(machine(gpu(0), gpu(1)), [gpu(0), gpu(1, **FAULTY)], None)
    running = Worker(uid="a", state=WorkerState.RUNNING, gpus=(0, 1), machine="m", version=4)
    beside = Worker(uid="b", state=WorkerState.RUNNING, gpus=(0,), machine="m")
    over = Worker(uid="c", state=WorkerState.FAILED, gpus=(1,), machine="m")
    stopping = Worker(uid="d", state=WorkerState.STOPPING, gpus=(1,), machine="m")
    (update,) = worker_updates(news, [running, beside, over, stopping])
    assert (update.uid, update.version, update.steps, update.fields) == ("a", 4, (), {})
    assert update.reason is not None
    assert update.reason.code == "worker.gpu_fault"


def test_a_worker_is_told_when_its_gpu_is_well_again():
    news = told(machine(gpu(1, **FAULTY)), [gpu(1)], None)
    told_before = reason("worker.gpu_fault", index=1, fault="Xid 79")
    hurt = Worker(uid="a", state=WorkerState.RUNNING, gpus=(1,), reason=told_before)
    other = Worker(uid="b", state=WorkerState.RUNNING, gpus=(2,))
    (update,) = worker_updates(news, [hurt, other])
    assert update.reason is not None
    assert update.reason.code == "worker.gpu_ok"
