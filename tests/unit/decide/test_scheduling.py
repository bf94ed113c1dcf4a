"""Who is looked at first, what keeps a worker off a machine, which machine is taken, and what a wait says."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.scheduling.cycle import schedule
from moorage.decide.scheduling.feasible import refusals
from moorage.decide.scheduling.fleet import Fleet, devices
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.order import ordered
from moorage.decide.scheduling.snapshot import Ask, Placement, Request, Room, SchedulingSnapshot
from moorage.domain.changes import Change, Hold, Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import MachineState

GIB = 1 << 30
ANY = Placement()


def gpu(index: int, model: str = "H100", memory: int = 80, **more: Any) -> dict[str, Any]:
    return {"index": index, "vendor": "nvidia", "model": model, "memory_bytes": memory * GIB, **more}


def room(name: str = "lab", gpus: tuple[dict[str, Any], ...] = (), **more: Any) -> Room:
    taken = {k: more.pop(k) for k in ("cpu_milli", "memory_bytes", "owners") if k in more}
    held = frozenset(more.pop("held", ()))
    capacity = more.pop("capacity", {"cpu_milli": 4000, "memory_bytes": 8 * GIB, "gpus": gpus})
    state = more.pop("state", MachineState.READY)
    return Room(Machine(uid=f"m-{name}", name=name, state=state, capacity=capacity, **more), gpus=held, **taken)


def worker(uid: str = "w", run: str = "r", queued_at: float = 0.0, rank: int = 0, **request: Any) -> Worker:
    return Worker(uid=uid, name=uid, run=run, queued_at=queued_at, rank=rank, request=request)


def snapshot(*pending: Worker, rooms: tuple[Room, ...] = (), now: float = 100.0, **runs: Run) -> SchedulingSnapshot:
    known = {w.run: Run(uid=w.run) for w in pending} | {r.uid: r for r in runs.values()}
    return SchedulingSnapshot(now, pending, known, rooms)


def placed(changes: tuple[Change, ...]) -> dict[str, str]:
    """worker → machine."""
    return {
        w.uid: str(w.fields["machine"])
        for c in changes
        for w in c.writes
        if isinstance(w, Update) and "machine" in w.fields
    }


def test_order_is_priority_then_submission_then_rank_then_uid() -> None:
    pending = (
        worker("late", queued_at=9.0),
        worker("b", queued_at=1.0),
        worker("a", queued_at=1.0),
        worker("second", queued_at=1.0, rank=1),
        worker("first", run="high", queued_at=50.0),
    )
    known = snapshot(*pending, high=Run(uid="high", priority=5))
    assert [w.uid for w in ordered(pending, known)] == ["first", "a", "b", "second", "late"]


@pytest.mark.parametrize(
    ("where", "request_", "placement", "codes"),
    [
        (room(), Request(), Placement(), []),
        (room(state=MachineState.NOT_READY), Request(), Placement(), ["node.not_ready"]),
        (room(state=MachineState.RECONCILING), Request(), Placement(), ["node.not_ready"]),
        (room(state=MachineState.DOWN), Request(), Placement(), ["node.not_ready"]),
        (room(capacity={}), Request(), Placement(), ["node.no_capacity"]),
        (room(cordoned="disk"), Request(), Placement(), ["node.cordoned"]),
        (room(pressure=("disk", "memory")), Request(), Placement(), ["node.pressure", "node.pressure"]),
        (
            room(state=MachineState.DOWN, cordoned="x"),
            Request(cpu_milli=9000),
            Placement(),
            ["node.not_ready", "node.cordoned"],
        ),
        (room(), Request(), Placement(machines=("other",)), ["node.not_selected"]),
        (room(), Request(), Placement(machines=("other", "lab")), []),
        (room(), Request(), Placement(labels={"pool": "gpu"}), ["node.lacks_label"]),
        (room(labels={"pool": "cpu"}), Request(), Placement(labels={"pool": "gpu"}), ["node.lacks_label"]),
        (room(labels={"pool": "gpu"}), Request(), Placement(labels={"pool": "gpu"}), []),
        (room(accepts=("team=ml",)), Request(), Placement(), ["node.label_not_accepted"]),
        (room(accepts=("team=ml",), labels={"team": "ml"}), Request(), Placement(labels={"team": "ml"}), []),
        (room(), Request(), Placement(runner="podman"), ["node.no_engine"]),
        (room(owners=frozenset({"me"})), Request(), Placement(spread="machine"), ["node.holds_worker"]),
        (room(owners=frozenset({"me"})), Request(), Placement(), []),
        (room(), Request(cpu_milli=4000), Placement(), []),
        (room(), Request(cpu_milli=4001), Placement(), ["node.cpu"]),
        (room(cpu_milli=3000), Request(cpu_milli=1001), Placement(), ["node.cpu"]),
        (room(reserve={"cpu_milli": 1000}), Request(cpu_milli=3001), Placement(), ["node.cpu"]),
        (room(memory_bytes=7 * GIB), Request(memory_bytes=GIB + 1), Placement(), ["node.memory"]),
        (room(), Request(gpus=1), Placement(), ["node.no_gpu_match"]),
        (room(gpus=(gpu(0, "A100"),)), Request(gpus=1, models=("H100",)), Placement(), ["node.no_gpu_match"]),
        (
            room(gpus=(gpu(0, memory=40),)),
            Request(gpus=1, gpu_memory_bytes=80 * GIB),
            Placement(),
            ["node.no_gpu_match"],
        ),
        (room(gpus=(gpu(0),)), Request(gpus=1, vendor="amd"), Placement(), ["node.no_gpu_match"]),
        (room(gpus=(gpu(0), gpu(1))), Request(gpus=2), Placement(), []),
        (room(gpus=(gpu(0), gpu(1)), held=(1,)), Request(gpus=2), Placement(), ["node.gpus"]),
        (room(gpus=(gpu(0, health="faulty"),)), Request(gpus=1), Placement(), ["node.gpus"]),
        (room(gpus=(gpu(0, health="at_risk"),)), Request(gpus=1), Placement(), []),
        (
            room(gpus=(gpu(0, health="at_risk"),)),
            Request(gpus=1, healthy_only=True),
            Placement(),
            ["node.healthy_gpus"],
        ),
    ],
)
def test_every_reason_that_keeps_a_worker_off_a_machine(
    where: Room, request_: Request, placement: Placement, codes: list[str]
) -> None:
    ask = Ask.of(request_, placement)
    apart = ("me",) if placement.spread == "machine" else ()
    assert [r.code for r in refusals(ask, where, apart)] == codes


def test_a_refusal_says_how_much_is_asked_and_free() -> None:
    (cpu,) = refusals(Ask(Request(cpu_milli=2500)), room(cpu_milli=3000))
    assert dict(cpu.params) == {"need": 2500, "free": 1000}
    (risky,) = refusals(Ask(Request(gpus=2, healthy_only=True)), room(gpus=(gpu(0), gpu(1, health="at_risk"))))
    assert dict(risky.params) == {"need": 2, "free": 1, "at_risk": 1}


def test_the_lowest_free_gpus_of_the_asked_kind_are_taken() -> None:
    where = room(gpus=(gpu(0), gpu(1, "A100"), gpu(2), gpu(3, health="faulty"), gpu(4)), held=(0,))
    ledger = Ledger(Fleet([where]))
    spot = ledger.spot(Ask(Request(gpus=2, models=("H100",))), 0)
    assert devices(where.machine, spot.gpus) == (2, 4)


def chosen(rooms: tuple[Room, ...], **request: Any) -> str:
    return placed(schedule(snapshot(worker("w", **request), rooms=rooms)).changes)["w"]


def test_the_machine_left_with_the_least_is_taken_and_ties_go_to_the_name() -> None:
    whole, half = room("whole", (gpu(0), gpu(1))), room("half", (gpu(0), gpu(1)), held=(0,))
    assert chosen((whole, half), gpus={"count": 1}) == "m-half"
    assert chosen((whole, room("plain")), cpu_milli=1) == "m-plain"
    assert chosen((room("b"), room("a"))) == "m-a"


def test_one_cycle_never_gives_a_gpu_twice() -> None:
    rooms = (room("a", (gpu(0), gpu(1))), room("b", (gpu(0),)))
    cycle = schedule(snapshot(*(worker(f"w{n}", run=f"r{n}", gpus={"count": 1}) for n in range(5)), rooms=rooms))
    taken = [(h.machine, g) for c in cycle.changes for h in c.writes if isinstance(h, Hold) for g in h.gpus]
    assert sorted(taken) == [("m-a", 0), ("m-a", 1), ("m-b", 0)]
    assert len(placed(cycle.changes)) == 3


def test_a_placement_raises_the_epoch_and_holds_what_was_asked_within_the_limits() -> None:
    asked = replace(worker("w", cpu_milli=1500, memory_bytes=GIB), epoch=4, version=7)
    cycle = schedule(snapshot(asked, rooms=(room(reserve={"cpu_milli": 500}),)))
    (change,) = cycle.changes
    update, hold = change.writes
    assert isinstance(update, Update)
    assert isinstance(hold, Hold)
    assert (update.version, update.fields["epoch"], update.fields["handed_over"]) == (7, 5, True)
    assert (hold.epoch, hold.cpu_milli, hold.memory_bytes) == (5, 1500, GIB)
    assert (hold.limit_cpu_milli, hold.limit_memory_bytes) == (3500, 8 * GIB)


def test_spread_over_machines_counts_the_placements_of_the_same_cycle() -> None:
    run = Run(uid="r", spec={"placement": {"spread": "machine"}})
    pending = [worker(f"w{n}", rank=n) for n in range(3)]
    cycle = schedule(snapshot(*pending, rooms=(room("a"), room("b")), r=run))
    assert placed(cycle.changes) == {"w0": "m-a", "w1": "m-b"}


def test_spread_keeps_the_replicas_of_one_deployment_apart() -> None:
    spread = {"placement": {"spread": "machine"}}
    pending = [replace(worker(f"w{n}", run=f"r{n}"), deployment="dep") for n in range(2)]
    runs = {f"r{n}": Run(uid=f"r{n}", spec=spread) for n in range(2)}
    cycle = schedule(snapshot(*pending, rooms=(room("a"), room("b")), **runs))
    assert sorted(placed(cycle.changes).values()) == ["m-a", "m-b"]


def test_a_worker_in_its_back_off_is_not_eligible_before() -> None:
    waiting = replace(worker(), restart_at=130.0)
    cycle = schedule(snapshot(waiting, rooms=(room(),), now=129.9))
    assert (cycle.changes, cycle.wake_at) == ((), 130.0)
    assert placed(schedule(snapshot(waiting, rooms=(room(),), now=130.0)).changes) == {"w": "m-lab"}


def test_a_run_that_is_to_end_gets_no_place() -> None:
    assert schedule(snapshot(worker(), rooms=(room(),), r=Run(uid="r", cancel={"cause": "user"}))).changes == ()


@pytest.mark.parametrize(
    ("rooms", "request_", "code", "params"),
    [
        ((), Request(), "place.no_machines", {}),
        ((room(cpu_milli=4000),), Request(cpu_milli=1000), "place.no_machine_fits", {"ready": 1, "total": 1}),
        (
            (room("a", cpu_milli=4000), room("b", state=MachineState.DOWN)),
            Request(cpu_milli=1000),
            "place.no_machine_fits",
            {"ready": 1, "total": 2},
        ),
        ((room(cordoned="x"),), Request(), "place.no_machine_fits", {"ready": 1, "total": 1}),
        (
            (room("a"), room("b")),
            Request(cpu_milli=64000),
            "place.never_fits",
            {"why": "asks for 64 cores, a has 4"},
        ),
        (
            (room(),),
            Request(memory_bytes=64 * GIB),
            "place.never_fits",
            {"why": "asks for 64.0 GiB of memory, lab has 8.0 GiB"},
        ),
        ((room(gpus=(gpu(0),)),), Request(gpus=2), "place.never_fits", {"why": "asks for 2 x GPU, lab has 1"}),
        ((room(gpus=(gpu(0),), held=(0,)),), Request(gpus=1), "place.no_machine_fits", {"ready": 1, "total": 1}),
    ],
)
def test_never_is_told_apart_from_not_now(
    rooms: tuple[Room, ...], request_: Request, code: str, params: dict[str, Any]
) -> None:
    (change,) = schedule(snapshot(asking(request_), rooms=rooms)).changes
    (update,) = change.writes
    assert isinstance(update, Update)
    assert update.reason is not None
    assert (update.reason.code, dict(update.reason.params)) == (code, params)


def asking(request_: Request) -> Worker:
    return worker(cpu_milli=request_.cpu_milli, memory_bytes=request_.memory_bytes, gpus={"count": request_.gpus})


def test_a_removed_machine_is_not_there() -> None:
    (change,) = schedule(snapshot(worker(), rooms=(room(state=MachineState.REMOVED),))).changes
    assert isinstance(update := change.writes[0], Update)
    assert update.reason is not None
    assert update.reason.code == "place.no_machines"


def test_a_wait_is_explained_once_and_again_only_when_a_reason_changes() -> None:
    full = room(cpu_milli=4000)
    first = schedule(snapshot(worker(cpu_milli=1000), rooms=(full,)))
    (change,) = first.changes
    (update,) = change.writes
    assert isinstance(update, Update)
    assert update.reason is not None
    assert update.reason.code == "place.no_machine_fits"
    explained = replace(worker(cpu_milli=1000), reason=update.reason, placement=update.fields["placement"])
    assert schedule(snapshot(explained, rooms=(full,))).changes == ()
    nearly = replace(full, cpu_milli=3500)
    assert schedule(snapshot(explained, rooms=(nearly,))).changes == (), "free counts alone are not news"
    cordoned = room(cordoned="disk")
    assert len(schedule(snapshot(explained, rooms=(cordoned,))).changes) == 1


def test_a_waiter_that_does_not_fit_blocks_nobody_behind_it() -> None:
    big, small = (
        worker("big", run="a", queued_at=1.0, cpu_milli=9000),
        worker("small", run="b", queued_at=2.0, cpu_milli=1),
    )
    assert placed(schedule(snapshot(big, small, rooms=(room(),))).changes) == {"small": "m-lab"}


def test_the_same_snapshot_gives_the_same_cycle() -> None:
    seen = snapshot(*(worker(f"w{n}", run=f"r{n}", cpu_milli=1500) for n in range(6)), rooms=(room("b"), room("a")))
    assert schedule(seen).changes == schedule(seen).changes
    assert reason("place.no_machines").code == "place.no_machines"
