"""What a machine is told of a worker: all that its spec asks for, and of a gang nothing before its barrier is open."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.control.launches import assignment, gang_of, needs_others
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import WorkerState
from moorage.wire.spec import document, normalise


def run(**parts: Any) -> Run:
    groups = parts.pop("groups", [{"runtime": {"command": ["x"]}, **parts.pop("group", {})}])
    return Run(
        uid="run-1",
        name="train",
        spec=normalise(document({"kind": "Run", "name": "train", "groups": groups, **parts})),
    )


def worker(rank: int = 0, **fields: Any) -> Worker:
    return Worker(uid=f"wrk-{rank}", name=f"train-{rank}", run="run-1", rank=rank, epoch=1, **fields)


def launch(row: Run, told: Worker | None = None) -> Any:
    return assignment(told or worker(), row, None).launch


@pytest.mark.parametrize(
    ("runtime", "more", "wanted"),
    [
        ({"command": ["x"]}, {}, False),
        ({"command": ["x", "--port={port}"]}, {}, True),
        ({"command": ["x"], "env": {"PORT": "{port}"}}, {}, True),
        ({"command": ["x"], "ready": {}}, {}, True),
        ({"command": ["x"], "live": {}}, {}, True),
        ({"command": ["x"]}, {"expose": [{"port": 8080, "external": True}]}, False),
    ],
)
def test_a_job_gets_a_port_only_where_its_spec_asks_for_one(
    runtime: dict[str, Any], more: dict[str, Any], wanted: bool
) -> None:
    assert launch(run(group={"runtime": runtime, **more})).port is wanted


def test_a_replica_always_gets_a_port() -> None:
    replica = Run(uid="run-1", replica="rep-1", deployment="dep-1", spec={"groups": [{"runtime": {"command": ["x"]}}]})
    assert launch(replica).port is True


def test_limits_and_what_to_do_when_cut_off_travel_with_the_worker() -> None:
    row = run(time_limit="2h", on_disconnect="stop", disconnect_after="3m", heartbeat_ttl="20s")
    told = launch(row, worker(heartbeat_ttl_s=20.0, disconnect_after_s=180.0))
    assert (told.time_limit_s, told.heartbeat_ttl_s) == (7200.0, 20.0)
    assert (told.on_disconnect, told.disconnect_after_s) == ("stop", 180.0)


def test_what_the_spec_gives_a_worker_is_told() -> None:
    runtime = {"command": ["x"], "secrets": {"T": "token"}, "configs": [{"path": "/etc/a", "content": "b"}]}
    told = launch(run(group={"runtime": runtime}, drives=[{"name": "data", "target": "/d"}], identity=True))
    assert told.secrets == {"T": "token"}
    assert [c.path for c in told.configs] == ["/etc/a"]
    assert [d.name for d in told.drives] == ["data"]
    assert told.identity is True


def test_an_element_of_an_array_knows_its_index_and_how_many_there_are() -> None:
    told = launch(run(array={"count": 20}), worker(7))
    assert (told.array, told.rank, told.world_size) == (True, 7, 20)


def gang() -> tuple[Run, list[Worker], dict[str, Machine]]:
    row = run(gang=True, group={"count": 2})
    placed = {"state": WorkerState.READY_TO_START, "handed_over": True}
    members = [
        worker(0, machine="m-a", rendezvous="10.0.0.1:18000", **placed),
        worker(1, machine="m-b", **placed),
    ]
    machines = {"m-a": Machine(uid="m-a", host="10.0.0.1"), "m-b": Machine(uid="m-b", host="10.0.0.2")}
    return row, members, machines


def test_a_gang_waits_at_its_barrier_and_its_leader_is_told_that_it_leads() -> None:
    row, (first, second), _ = gang()
    assert not needs_others(second, row)
    told = assignment(second, row, None)
    assert (told.go, told.leader, told.hosts) == (False, None, ())
    assert (told.launch.barrier, told.launch.leads, assignment(first, row, None).launch.leads) == (True, False, True)
    assert told.launch.world_size == 2


def test_an_open_barrier_says_who_leads_and_where_everybody_is() -> None:
    row, members, machines = gang()
    opened = [replace(w, go=True) for w in members]
    assert needs_others(opened[1], row)
    told = assignment(opened[1], row, None, gang_of(row, opened, machines))
    assert (told.go, told.leader, told.hosts) == (True, "10.0.0.1:18000", ("10.0.0.1", "10.0.0.2"))


def test_the_size_of_a_group_that_was_planned_is_the_number_of_its_workers() -> None:
    row = run(group={"total_gpus": 6})
    members = [worker(0), worker(1), worker(2)]
    assert needs_others(members[0], row)
    assert assignment(members[0], row, None, gang_of(row, members, {})).launch.world_size == 3


def test_a_stop_carries_its_cause_its_words_and_its_grace() -> None:
    asked = {"cause": "preemption", "text": None, "since": 1.0, "grace_s": 45.0}
    told = assignment(worker(state=WorkerState.STOPPING, stop=asked), run(), None)
    assert told.desired == "stop"
    assert told.stop is not None
    assert (told.stop.cause, told.stop.grace_s, told.stop.signal) == ("preemption", 45.0, "SIGTERM")
