"""The state of a run, derived from its workers: each row of the contract's table, first match first."""

from typing import Any

import pytest

from moorage.decide.running.runs import derive
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import RunState, WorkerState
from tests.run_world import run_spec

S, W = RunState, WorkerState

SHORT = {
    "P": W.PENDING,
    "p": W.PENDING,  # placed
    "B": W.READY_TO_START,
    "s": W.STARTING,
    "R": W.RUNNING,
    "~": W.STALE,
    "x": W.STOPPING,
    "C": W.COMPLETED,
    "f": W.FAILED,  # its policy starts it again
    "F": W.FAILED,  # for good
    "d": W.DOWN,  # it may come back
    "D": W.DOWN,  # for good
    "u": W.CANCELLED,  # by a person
    "q": W.CANCELLED,  # preempted: queued again once all is gone
    "T": W.CANCELLED,  # its time limit
}
CAUSES = {"u": "user", "q": "preemption", "T": "time_limit"}
REASONS = {"F": "exit.unknown", "f": "exit.unknown", "d": "machine.lost", "D": "machine.lost", "B": "gang.barrier"}


def workers(letters: str, group: str = "worker") -> list[Worker]:
    """One worker a letter."""
    return [
        Worker(
            uid=f"{group}{n}",
            name=f"{group}-{n}",
            group=group,
            rank=n,
            state=SHORT[letter],
            machine=None if letter == "P" else "m",
            handed_over=letter not in "PCfFdDuqT",
            final=letter in "FD",
            stop={"cause": CAUSES[letter]} if letter in CAUSES else None,
            reason=reason(REASONS.get(letter, "worker.created")),
            exit_code=3 if letter in "fF" else None,
        )
        for n, letter in enumerate(letters)
    ]


def run(state: RunState = S.PENDING, cancel: str | None = None, **spec: Any) -> Run:
    """A run of its own."""
    return Run(uid="r", state=state, spec=run_spec(**spec), cancel={"cause": cancel, "text": None} if cancel else None)


GANG = {"gang": True}
MINIMUM = {"gang": {"min_available": 2}}
END = {"array": {"count": 3, "fail": "end"}}
FIRST = {"array": {"count": 3, "fail": "first"}}
ALWAYS = {"restart_policy": "Always"}
TABLE: list[tuple[str, dict[str, Any], RunState, str]] = [
    # 2 Failed
    ("RT", {"time_limit": 5.0}, S.FAILED, "run.time_limit"),
    ("FT", {"time_limit": 5.0}, S.FAILED, "run.time_limit"),
    ("RRT", MINIMUM | {"time_limit": 5.0}, S.FAILED, "run.time_limit"),
    ("RF", {}, S.FAILED, "run.worker_failed"),
    ("RD", {}, S.FAILED, "run.worker_lost"),
    ("FRF", {}, S.FAILED, "run.workers_failed"),
    ("CF", {}, S.FAILED, "run.worker_failed"),
    ("uF", {}, S.FAILED, "run.worker_failed"),
    ("RF", GANG, S.FAILED, "run.gang_member_failed"),
    ("RD", GANG, S.FAILED, "run.gang_member_failed"),
    ("FRR", MINIMUM, S.FAILED, "run.gang_member_failed"),
    ("RRF", MINIMUM, S.RUNNING, "run.running"),
    ("RFR", END, S.RUNNING, "run.running"),
    ("CFP", END, S.PENDING, "worker.created"),
    ("CFC", END, S.FAILED, "run.workers_failed"),
    ("uFC", END, S.FAILED, "run.workers_failed"),
    ("RFR", FIRST, S.FAILED, "run.worker_failed"),
    # 3 Completed
    ("C", {}, S.COMPLETED, "run.completed"),
    ("CC", {}, S.COMPLETED, "run.completed"),
    ("CCR", MINIMUM, S.COMPLETED, "run.completed"),
    ("CCF", MINIMUM, S.COMPLETED, "run.completed"),
    ("CC", GANG, S.COMPLETED, "run.completed"),
    ("CR", {}, S.RUNNING, "run.running"),
    ("CP", {}, S.PENDING, "worker.created"),
    ("CC", ALWAYS, S.PENDING, "worker.created"),
    # 4 Cancelled
    ("u", {}, S.CANCELLED, "run.cancelled"),
    ("uC", {}, S.CANCELLED, "run.cancelled"),
    ("uu", GANG, S.CANCELLED, "run.cancelled"),
    ("uR", {}, S.RUNNING, "run.running"),
    ("ux", {}, S.PENDING, "run.stopping"),
    ("q", {}, S.PENDING, "worker.created"),
    ("uq", {}, S.PENDING, "worker.created"),
    ("uf", {}, S.PENDING, "exit.unknown"),
    ("ud", {}, S.PENDING, "machine.lost"),
    # 5 Starting
    ("pp", GANG, S.STARTING, "run.starting"),
    ("BB", GANG, S.STARTING, "run.starting"),
    ("RB", GANG, S.STARTING, "run.starting"),
    ("CsR", GANG, S.STARTING, "run.starting"),
    ("BBP", MINIMUM, S.STARTING, "run.starting"),
    ("BP", GANG, S.PENDING, "gang.barrier"),
    ("Rx", GANG, S.PENDING, "run.stopping"),
    ("Rf", GANG, S.PENDING, "exit.unknown"),
    ("Rq", GANG, S.PENDING, "worker.created"),
    ("Rd", GANG, S.PENDING, "machine.lost"),
    ("pp", {}, S.PENDING, "worker.created"),
    # 6 Running
    ("RR", {}, S.RUNNING, "run.running"),
    ("R~", {}, S.RUNNING, "run.running"),
    ("~P", {}, S.RUNNING, "run.running"),
    ("Rf", {}, S.RUNNING, "run.running"),
    ("RR", GANG, S.RUNNING, "run.running"),
    ("RC", GANG, S.RUNNING, "run.running"),
    ("RRP", MINIMUM, S.RUNNING, "run.running"),
    ("RRx", MINIMUM, S.RUNNING, "run.running"),
    ("RR", {"lifetime": "service"}, S.RUNNING, "run.serving"),
    # 7 Pending
    ("P", {}, S.PENDING, "worker.created"),
    ("xP", {}, S.PENDING, "run.stopping"),
    ("CdP", {}, S.PENDING, "machine.lost"),
    ("f", {}, S.PENDING, "exit.unknown"),
]


@pytest.mark.parametrize(("letters", "spec", "state", "code"), TABLE)
def test_a_run_is_what_its_workers_are(letters: str, spec: dict[str, Any], state: RunState, code: str) -> None:
    found = derive(run(**spec), list(reversed(workers(letters))))
    assert found is not None
    assert (found.state, found.reason.code) == (state, code)


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("uf", S.CANCELLED),
        ("f", S.CANCELLED),
        ("d", S.CANCELLED),
        ("qC", S.CANCELLED),
        ("F", S.FAILED),
        ("x", S.PENDING),
    ],
)
def test_with_a_cancel_nothing_is_waited_for_that_would_have_started_again(letters: str, state: RunState) -> None:
    found = derive(run(cancel="user"), workers(letters))
    assert found is not None
    assert found.state is state


def test_workers_that_always_start_again_end_with_a_cancel() -> None:
    found = derive(run(cancel="user", restart_policy="Always"), workers("CC"))
    assert found is not None
    assert found.state is S.CANCELLED


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.CANCELLED])
@pytest.mark.parametrize("letters", ["R", "F", "C", "u", "P"])
def test_a_terminal_run_stays(state: RunState, letters: str) -> None:
    assert derive(run(state), workers(letters)) is None


def test_a_run_without_workers_is_as_it_was() -> None:
    assert derive(run(), []) is None


# complete_with


def groups(policy: str = "OnFailure") -> dict[str, Any]:
    """A database for as long as the work takes."""
    named = [{"name": "db", "count": 1, "restart_policy": policy}, {"name": "work", "count": 2}]
    return {"groups": named, "complete_with": "work"}


@pytest.mark.parametrize(
    ("db", "work", "state", "code"),
    [
        ("R", "CC", S.COMPLETED, "run.group_completed"),
        ("P", "CC", S.COMPLETED, "run.group_completed"),
        ("C", "CR", S.RUNNING, "run.running"),
        ("F", "RR", S.FAILED, "run.group_needed"),
        ("D", "RR", S.FAILED, "run.group_needed"),
        ("R", "CF", S.FAILED, "run.worker_failed"),
        ("R", "FF", S.FAILED, "run.workers_failed"),
    ],
)
def test_a_run_completes_with_the_group_it_names(db: str, work: str, state: RunState, code: str) -> None:
    found = derive(run(**groups("Always")), [*workers(db, "db"), *workers(work, "work")])
    assert found is not None
    assert (found.state, found.reason.code) == (state, code)


def test_the_first_waiting_worker_in_the_order_of_groups_says_why() -> None:
    spec = {"groups": [{"name": "z", "count": 1}, {"name": "a", "count": 1}]}
    first = workers("d", "z")
    found = derive(run(**spec), [*workers("P", "a"), *first])
    assert found is not None
    assert found.reason == first[0].reason


# What is said of it


def test_several_failures_are_counted_and_the_first_is_told() -> None:
    found = derive(run(**END), workers("CFF"))
    assert found is not None
    assert (found.reason.params["k"], found.reason.params["n"]) == (2, 3)
    assert found.reason.params["first"].startswith("worker-1: ")


def test_a_failure_names_the_worker_and_how_it_ended() -> None:
    found = derive(run(), workers("CF"))
    assert found is not None
    assert found.reason.params["worker"] == "worker-1"
    assert "nothing says how it ended" in found.reason.params["reason"]


def test_starting_counts_those_at_the_barrier_or_beyond() -> None:
    found = derive(run(**GANG), workers("pBsRC"))
    assert found is not None
    assert dict(found.reason.params) == {"ready": 4, "total": 5}


def test_running_counts_the_ones_that_run() -> None:
    found = derive(run(), workers("RR~PC"))
    assert found is not None
    assert dict(found.reason.params) == {"ready": 3, "total": 5}
