"""CSV files of a simulation: what they mean, and that each fault is said with file, line and column."""

from pathlib import Path

import pytest

from moorage.domain.errors import InvalidSpec, NotFound
from moorage.sim import machines, traces
from moorage.sim.traces import Task, Trace
from moorage.sim.workload import Choice, choose

GIB = 1 << 30
TASKS = "name,submit_s,duration_s,gpus,cpu,memory_gib,workers,gang,priority,models,time_limit_s,labels\n"
OPENB_TASKS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file.csv"
    path.write_text(text)
    return path


def test_machines_of_our_own_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "name,count,cpu,memory_gib,gpus,model,gpu_memory_gib,labels\nbig,2,128,1024,8,H100,80,pool=a;zone=b\n",
    )
    found = machines.load(path)
    assert [machine.name for machine in found] == ["big-0", "big-1"]
    assert found[0].capacity["cpu_milli"] == 128_000
    assert found[0].capacity["memory_bytes"] == 1024 * GIB
    assert len(found[0].capacity["gpus"]) == 8
    assert found[0].capacity["gpus"][3]["model"] == "H100"
    assert found[0].capacity["gpus"][3]["memory_bytes"] == 80 * GIB
    assert found[0].labels == {"pool": "a", "zone": "b"}


def test_machines_of_openb_are_known_by_their_header(tmp_path: Path) -> None:
    path = written(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\nnode-0,64000,262144,2,P100\n")
    (machine,) = machines.load(path)
    assert machine.name == "node-0"
    assert machine.capacity["memory_bytes"] == 256 * GIB
    assert [gpu["model"] for gpu in machine.capacity["gpus"]] == ["P100", "P100"]


def test_tasks_of_our_own_columns_come_in_order_of_submission(tmp_path: Path) -> None:
    path = written(tmp_path, TASKS + "late,90,10,0,1,1,,,,,,\nearly,5.5,60,8,32,64,2,true,10,H100|A100,120,pool=a\n")
    early, late = traces.load(path).tasks
    assert late == Task("late", 90.0, 10.0, 0, 1000, GIB)
    assert early == Task("early", 5.5, 60.0, 8, 32_000, 64 * GIB, 2, True, 10, ("H100", "A100"), 120.0, {"pool": "a"})
    assert early.gpus_total == 16


def test_a_time_limit_ends_a_task_too() -> None:
    assert Task("t", 0, 100, time_limit_s=60).runs_s == 60
    assert Task("t", 0, 100, time_limit_s=600).runs_s == 100


def test_tasks_of_openb_run_as_long_as_they_did_and_their_shares_are_counted(tmp_path: Path) -> None:
    rows = "a,4000,1024,1,460,,LS,Running,10,100,40\nb,4000,1024,1,1000,T4|P100,BE,Pending,20,50,\n"
    trace = traces.load(written(tmp_path, OPENB_TASKS + rows))
    a, b = trace.tasks
    assert (a.submit_s, a.duration_s, a.gpus) == (10, 60, 1)
    assert (b.duration_s, b.models) == (30, ("T4", "P100"))
    assert trace.notes[0].startswith("1 tasks ask for a share")
    assert trace.notes[1].startswith("1 tasks never started")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "line 1: there is no header"),
        (TASKS, "has a header and no rows"),
        (
            TASKS.replace("gpus", "gpu") + "a,0,1,0,1,1,,,,,,\n",
            "line 1: column 'gpu' is not known; did you mean `gpus`",
        ),
        ("name,submit_s\na,0\n", "line 1: lacks the columns duration_s, gpus, cpu, memory_gib"),
        (TASKS + "a,0,1,0,1,1,,,,,,\nb,x,1,0,1,1,,,,,,\n", "line 3, column submit_s: 'x' is not a number"),
        (TASKS + "a,0,,0,1,1,,,,,,\n", "line 2, column duration_s: is empty"),
        (TASKS + "a,0,-1,0,1,1,,,,,,\n", "line 2, column duration_s: -1 is not allowed, the least is 0"),
        (TASKS + "a,nan,1,0,1,1,,,,,,\n", "line 2, column submit_s: nan is not allowed"),
        (TASKS + "a,0,1,0.5,1,1,,,,,,\n", "line 2, column gpus: 0.5 is not a whole number"),
        (TASKS + "a,0,1,0,1,1,0,,,,,\n", "line 2, column workers: 0 is not allowed, the least is 1"),
        (TASKS + "a,0,1,0,1,1,,maybe,,,,\n", "line 2, column gang: 'maybe' is neither `true` nor `false`"),
        (TASKS + "a,0,1,0,1,1,,,,,0,\n", "line 2, column time_limit_s: 0 is not allowed, the least is 1"),
        (TASKS + "a,0,1,0,1,1,,,,,,pool\n", "line 2, column labels: 'pool' is not `key=value`"),
        (TASKS + "a,0,1\n", "line 2, column gpus: the row has 3 cells, the header 12"),
        (TASKS + 'a,0,1,0,1,1,,,,,,"x\n', "line 2: unexpected end of data"),
        ("name,name\na,b\n", "line 1: column 'name' is there twice"),
        (OPENB_TASKS + "a,1,1,0,0,,LS,Failed,10,5,\n", "line 2, column deletion_time: 5 is before the task began"),
    ],
)
def test_a_fault_in_a_trace_is_said_with_its_place_and_what_to_do(tmp_path: Path, text: str, where: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidSpec) as caught:
        traces.load(path)
    assert caught.value.message.startswith(str(path))
    assert where in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("name,cpu,memory_gib,gpus\n,1,1,0\n", "line 2, column name: is empty"),
        ("name,cpu,memory_gib,gpus\na,1,1,65\n", "line 2, column gpus: 65 GPUs on one machine; at most 64"),
        ("name,cpu,memory_gib,gpus\na,1,1,0\na,1,1,0\n", "line 3, column name: there are two machines 'a'"),
        ("name,cpu,memory_gib,gpus,count\na,1,1,0,999999\n", "line 2, column count: 999999 machines"),
    ],
)
def test_a_fault_in_machines_is_said_likewise(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        machines.load(written(tmp_path, text))
    assert where in caught.value.message
    assert caught.value.remedy


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.csv: there is no such file"):
        traces.load(tmp_path / "nowhere.csv")
    with pytest.raises(InvalidSpec, match="cannot be read"):
        traces.load(tmp_path)
    (tmp_path / "latin.csv").write_bytes(b"name\nx\nsch\xf6n\n")
    with pytest.raises(InvalidSpec, match=r"latin\.csv, line 3: is not UTF-8"):
        traces.load(tmp_path / "latin.csv")


# What is played of it

TRACE = Trace(tuple(Task(f"t{n}", n * 3600.0, 60.0, gpus=n % 3) for n in range(60)))


def test_hours_choose_a_stretch_that_begins_at_zero() -> None:
    found = choose(TRACE, Choice(hours=(24.0, 48.0)), 8).tasks
    assert [task.name for task in found] == [f"t{n}" for n in range(24, 48)]
    assert found[0].submit_s == 0


def test_a_pace_brings_tasks_sooner_and_leaves_them_as_long_as_they_are() -> None:
    found = choose(TRACE, Choice(pace=10.0), 8).tasks
    assert [(task.submit_s, task.duration_s) for task in found] == [(n * 360.0, 60.0) for n in range(60)]


def test_a_sample_and_copies_are_the_same_for_the_same_seed() -> None:
    choice = Choice(sample=0.5, scale=2.5, seed=3)
    found = choose(TRACE, choice, 8).tasks
    assert found == choose(TRACE, choice, 8).tasks
    assert found != choose(TRACE, Choice(sample=0.5, scale=2.5, seed=4), 8).tasks
    assert 40 < len(found) < 120


def test_a_cluster_is_filled_until_130_per_cent_of_its_gpus_are_asked_for_and_no_further() -> None:
    found = choose(TRACE, Choice(saturate=True, seed=1), 100).tasks
    asked = [task.gpus_total for task in found]
    assert sum(asked) >= 130
    assert sum(asked[:-1]) < 130
    assert [task.submit_s for task in found] == list(range(len(found)))


def test_declared_limits_are_a_multiple_of_what_tasks_take() -> None:
    assert {task.time_limit_s for task in choose(TRACE, Choice(limits=2.0), 8).tasks} == {120.0}


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (Choice(hours=(100.0, None)), "no task of the trace is left"),
        (Choice(saturate=True, hours=(0.0, 1.0)), "no task asks for a GPU"),
    ],
)
def test_nothing_to_play_is_refused(choice: Choice, text: str) -> None:
    with pytest.raises(InvalidSpec, match=text):
        choose(TRACE, choice, 8)
