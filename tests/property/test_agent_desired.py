"""Laws of the agent's comparison of what is wanted with what it holds, over random histories of both."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.desired import HeldView, compare
from moorage.wire.agent import Assignment, Launch

WORKERS = st.sampled_from(["a", "b", "c"])
HELD = st.dictionaries(
    WORKERS,
    st.builds(
        HeldView,
        epoch=st.integers(1, 5),
        born=st.booleans(),
        gone=st.booleans(),
        settled=st.booleans(),
        waiting=st.booleans(),
    ),
)


@st.composite
def worlds(draw):
    held = draw(HELD)
    seen = draw(st.dictionaries(WORKERS, st.integers(0, 6)))
    seen |= {w: max(v.epoch, seen.get(w, 0)) for w, v in held.items()}
    wanted = draw(
        st.dictionaries(WORKERS, st.tuples(st.integers(1, 7), st.sampled_from(["run", "stop"]), st.booleans()))
    )
    assignments = [
        Assignment(worker=w, run="r", epoch=e, desired=d, go=g, launch=Launch()) for w, (e, d, g) in wanted.items()
    ]
    return assignments, held, seen


@given(worlds())
def test_nothing_is_started_with_an_epoch_that_was_seen_before_unless_it_never_ran(world):
    assignments, held, seen = world
    for it in compare(assignments, held, seen).start:
        have = held.get(it.worker)
        never_ran = have is not None and have.epoch == it.epoch and not have.born
        assert never_ran or it.epoch > seen.get(it.worker, 0)


@given(worlds())
def test_nothing_is_started_beside_a_process_of_the_same_worker_that_is_not_gone(world):
    assignments, held, seen = world
    for it in compare(assignments, held, seen).start:
        have = held.get(it.worker)
        assert have is None or have.gone or not have.born


@given(worlds())
def test_a_stop_never_reaches_a_newer_epoch_than_it_names(world):
    assignments, held, seen = world
    for it in compare(assignments, held, seen).stop:
        assert held[it.worker].epoch == it.epoch


@given(worlds())
def test_what_is_not_named_is_asked_about_and_never_stopped_at_once(world):
    assignments, held, seen = world
    actions = compare(assignments, held, seen)
    named = {a.worker for a in assignments}
    stopped = {a.worker for a in actions.stop} | set(actions.supersede)
    assert stopped <= named
    assert set(actions.unclaimed) == {w for w, v in held.items() if w not in named and not v.gone}


@given(worlds())
def test_only_what_is_gone_is_forgotten_and_without_a_successor_only_what_is_known(world):
    assignments, held, seen = world
    actions = compare(assignments, held, seen)
    started = {a.worker for a in actions.start}
    for worker in actions.forget:
        assert held[worker].gone
        assert held[worker].settled or worker in started


@given(worlds())
def test_the_same_input_gives_the_same_actions_and_each_assignment_at_most_one(world):
    assignments, held, seen = world
    actions = compare(assignments, held, seen)
    assert actions == compare(assignments, held, seen)
    touched = [
        a.worker for group in (actions.start, actions.go, actions.stop, actions.absent, actions.refused) for a in group
    ]
    touched += actions.supersede
    assert len(touched) == len(set(touched))


@given(worlds())
def test_a_go_reaches_exactly_those_that_wait_for_it_at_the_same_epoch_and_each_time(world):
    assignments, held, seen = world
    told = {a.worker for a in compare(assignments, held, seen).go}
    due = {
        a.worker
        for a in assignments
        if a.desired == "run"
        and a.go
        and (have := held.get(a.worker)) is not None
        and have.epoch == a.epoch
        and have.waiting
        and have.born
        and not have.gone
    }
    assert told == due


@given(worlds())
def test_what_is_gone_is_not_started_again_at_the_same_epoch(world):
    assignments, held, seen = world
    for it in compare(assignments, held, seen).start:
        have = held.get(it.worker)
        assert have is None or have.epoch < it.epoch or not have.gone


@given(worlds())
def test_who_still_wants_a_stop_of_what_is_gone_and_told_is_told_again(world):
    assignments, held, seen = world
    absent = {a.worker for a in compare(assignments, held, seen).absent}
    for it in assignments:
        have = held.get(it.worker)
        if it.desired == "stop" and have is not None and have.epoch == it.epoch:
            assert (it.worker in absent) == (have.gone and have.settled)
