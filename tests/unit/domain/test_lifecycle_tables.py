"""The tables against the lifecycle contract, transcribed here by hand and laid out otherwise than the code has them.

`CONTRACT` is, per noun and state, the set of states that may follow. `EDGES` says, per trigger, from where to where.
Together they decide every triple (state, state, trigger): what is not written here must be refused.
"""

from collections import deque
from itertools import product

import pytest

from moorage.domain.errors import IllegalTransition
from moorage.domain.lifecycles import TABLES, TRIGGERS

CONTRACT = {
    "Worker": """
        Pending        > Preparing Pending Stopping Cancelled Failed
        Preparing      > Pulling Starting ReadyToStart Failed Stopping Down
        Pulling        > Starting ReadyToStart Failed Stopping Down
        ReadyToStart   > Starting Failed Stopping Down
        Starting       > Running Completed Failed Stopping Down
        Running        > Stale Completed Failed Stopping Down
        Stale          > Running Completed Failed Stopping Down
        Stopping       > Cancelled Completed Failed
        Down           > Pending Running Completed Failed Cancelled
        Failed         > Pending
        Completed      > Pending
        Cancelled      > Pending
    """,
    "Run": """
        Pending        > Starting Running Completed Failed Cancelled
        Starting       > Running Pending Completed Failed Cancelled
        Running        > Pending Starting Completed Failed Cancelled
        Completed      >
        Failed         >
        Cancelled      >
    """,
    "Machine": """
        Joining        > Ready Reconciling Removed
        Ready          > NotReady Reconciling Down Removed
        NotReady       > Ready Reconciling Down Removed
        Down           > Reconciling Removed
        Reconciling    > Ready Down Removed
        Removed        >
    """,
    "Replica": """
        pending                   > pulling_docker_image initing_docker_container running failed stopped
        pulling_docker_image      > initing_docker_container running failed stopped
        initing_docker_container  > running failed stopped
        running                   > failed stopped
        failed                    >
        stopped                   >
    """,
    "Deployment": """
        created        > paused failed stopped
        paused         > created stopped
        failed         >
        stopped        >
    """,
    "Revision": """
        candidate      > provisioning failed cancelled
        provisioning   > evaluating active failed rejected cancelled
        evaluating     > provisioning promoting rejected failed cancelled
        promoting      > active evaluating rejected failed cancelled
        active         > draining
        draining       > superseded active
        superseded     > provisioning
        rejected       >
        failed         >
        cancelled      >
    """,
    "Operation": """
        pending          > leased cancelled
        leased           > running cancelling pending
        running          > waiting succeeded failed cancelling needs_attention pending
        waiting          > leased cancelling failed needs_attention
        cancelling       > cancelled succeeded needs_attention
        needs_attention  > pending cancelling
        succeeded        >
        failed           >
        cancelled        >
    """,
    "Runner": """
        stopped        > pulling loading
        pulling        > loading stopping error
        loading        > running loading stopped stopping error
        running        > loading stopped stopping error
        stopping       > stopped
        error          > loading pulling stopping stopped
    """,
    "Namespace": """
        active >
    """,
    "Key": """
        active  > revoked
        revoked >
    """,
    "Endpoint": """
        active >
    """,
}

EDGES = {
    "Worker": """
        picked_up          Pending > Preparing
        pulling            Preparing > Pulling
        barrier            Preparing Pulling > ReadyToStart
        barrier_open       ReadyToStart > Starting
        started            Preparing Pulling > Starting
        running            Starting > Running
        heartbeat_late     Running > Stale
        heartbeat_back     Stale > Running
        heartbeat_expired  Stale > Down
        exited_zero        Starting Running Stale Stopping > Completed
        exited_nonzero     Starting Running Stale Stopping > Failed
        failed             Preparing Pulling ReadyToStart Starting Running Stale Stopping > Failed
        vanished           Preparing Pulling ReadyToStart Starting Running Stale > Failed
        stop_requested     Pending Preparing Pulling ReadyToStart Starting Running Stale > Stopping
        stop_confirmed     Stopping > Cancelled
        cancelled          Pending Down > Cancelled
        refused            Pending > Failed
        dependency_failed  Pending > Failed
        unplaced           Pending > Pending
        machine_lost       Preparing Pulling ReadyToStart Starting Running Stale > Down
        machine_lost       Stopping > Cancelled
        machine_removed    Preparing Pulling ReadyToStart Starting Running Stale > Down
        machine_removed    Stopping > Cancelled
        returned           Down > Running
        late_report        Down > Completed Failed
        restart            Down Failed Completed > Pending
        gang_restart       Down Failed Completed > Pending
        requeued           Cancelled > Pending
    """,
    "Run": """
        workers_waiting    Starting Running > Pending
        gang_placed        Pending Running > Starting
        workers_running    Pending Starting > Running
        completed          Pending Starting Running > Completed
        failed             Pending Starting Running > Failed
        cancelled          Pending Starting Running > Cancelled
    """,
    "Machine": """
        joined             Joining > Ready
        holds_processes    Joining > Reconciling
        rejoined           Ready NotReady > Reconciling
        heartbeat_late     Ready > NotReady
        heartbeat_back     NotReady > Ready
        lease_expired      Ready NotReady Reconciling > Down
        returned           Down > Reconciling
        reconciled         Reconciling > Ready
        removed            Joining Ready NotReady Down Reconciling > Removed
    """,
    "Replica": """
        pulling            pending > pulling_docker_image
        initing            pending pulling_docker_image > initing_docker_container
        ready              pending pulling_docker_image initing_docker_container > running
        failed             pending pulling_docker_image initing_docker_container running > failed
        stopped            pending pulling_docker_image initing_docker_container running > stopped
    """,
    "Deployment": """
        idle               created > paused
        paused_by_person   created > paused
        wake_failed        created > paused
        wake_request       paused > created
        rollout            paused > created
        scaled             paused > created
        failed_fatal       created > failed
        stop_requested     created paused > stopped
        delete_requested   created paused > stopped
    """,
    "Revision": """
        provision          candidate > provisioning
        replica_ready      provisioning > evaluating
        lost_ready         evaluating > provisioning
        accepted           evaluating > promoting
        decision_stale     promoting > evaluating
        promoted           provisioning promoting > active
        replaced           active > draining
        drained            draining > superseded
        rollback           draining > active
        rollback           superseded > provisioning
        rejected           provisioning evaluating promoting > rejected
        failed_fatal       candidate provisioning evaluating promoting > failed
        deadline           candidate provisioning evaluating promoting > failed
        cancelled          candidate provisioning evaluating promoting > cancelled
    """,
    "Operation": """
        leased             pending waiting > leased
        started            leased > running
        lease_lost         leased running > pending
        waiting            running > waiting
        succeeded          running cancelling > succeeded
        failed             running waiting > failed
        attempts_exhausted running waiting > failed
        cancel_requested   leased running waiting needs_attention > cancelling
        cancelled          pending cancelling > cancelled
        needs_attention    running waiting cancelling > needs_attention
        resolved           needs_attention > pending
    """,
    "Runner": """
        pull               stopped error > pulling
        load               stopped pulling error > loading
        ready              loading > running
        restart            loading running > loading
        exited_zero        loading running > stopped
        stop               pulling loading running error > stopping
        stopped            stopping error > stopped
        restarts_exhausted loading running > error
        failed             pulling loading > error
    """,
    "Namespace": "",
    "Key": """
        revoked  active > revoked
    """,
    "Endpoint": "",
}

INITIAL = {
    "Worker": {"Pending"},
    "Run": {"Pending"},
    "Machine": {"Joining"},
    "Replica": {"pending"},
    "Deployment": {"created", "paused"},
    "Revision": {"candidate"},
    "Operation": {"pending"},
    "Namespace": {"active"},
    "Key": {"active"},
    "Endpoint": {"active"},
    "Runner": {"stopped"},
}

NOUNS = sorted(CONTRACT)


def contract_of(noun: str) -> dict[str, set[str]]:
    lines = (line.split(">") for line in CONTRACT[noun].strip().splitlines())
    return {source.strip(): set(targets.split()) for source, targets in lines}


def edges_of(noun: str) -> set[tuple[str, str, str]]:
    out = set()
    for line in EDGES[noun].strip().splitlines():
        left, right = line.split(">")
        trigger, *sources = left.split()
        out |= {(source, target, trigger) for source, target in product(sources, right.split())}
    return out


def test_every_noun_with_a_lifecycle_has_a_table_under_its_kind_word() -> None:
    assert set(TABLES) == set(CONTRACT) == set(TRIGGERS)


@pytest.mark.parametrize("noun", NOUNS)
def test_a_state_is_followed_by_exactly_the_states_of_the_contract(noun: str) -> None:
    table = TABLES[noun]
    assert {str(s): set(table.targets(s)) for s in table.states} == contract_of(noun)


@pytest.mark.parametrize("noun", NOUNS)
def test_every_triple_of_states_and_trigger_is_allowed_only_where_it_is_written(noun: str) -> None:
    table, expected = TABLES[noun], edges_of(noun)
    states, triggers = [str(s) for s in table.states], {t for _, _, t in expected}
    assert set(table.triggers) == triggers
    for triple in product(states, states, triggers):
        assert table.allows(*triple) == (triple in expected), triple


@pytest.mark.parametrize("noun", NOUNS)
def test_every_triple_that_is_not_written_is_refused_with_the_states_named(noun: str) -> None:
    table, expected = TABLES[noun], edges_of(noun)
    for source, target, trigger in product(table.states, table.states, table.triggers):
        if (str(source), str(target), trigger) in expected:
            table.check(source, target, trigger)
            continue
        with pytest.raises(IllegalTransition) as refused:
            table.check(source, target, trigger)
        assert all(word in refused.value.message for word in (noun, str(source), str(target), trigger))


@pytest.mark.parametrize("noun", NOUNS)
def test_an_unknown_trigger_moves_nothing(noun: str) -> None:
    table = TABLES[noun]
    assert not any(table.allows(r.source, r.target, "because") for r in table.rows)


@pytest.mark.parametrize("noun", NOUNS)
def test_no_row_is_written_twice(noun: str) -> None:
    rows = [(str(r.source), str(r.target), r.trigger) for r in TABLES[noun].rows]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("noun", NOUNS)
def test_objects_begin_only_in_the_initial_states_of_the_contract(noun: str) -> None:
    assert TABLES[noun].initial == INITIAL[noun]


@pytest.mark.parametrize("noun", NOUNS)
def test_every_state_is_reached_from_an_initial_one(noun: str) -> None:
    table = TABLES[noun]
    seen, queue = set(table.initial), deque(table.initial)
    while queue:
        new = table.targets(queue.popleft()) - seen
        seen |= new
        queue.extend(new)
    assert seen == {str(s) for s in table.states}


@pytest.mark.parametrize("noun", NOUNS)
def test_nothing_leaves_the_terminal_states_and_only_those(noun: str) -> None:
    assert TABLES[noun].terminal == {s for s, targets in contract_of(noun).items() if not targets}


@pytest.mark.parametrize("noun", NOUNS)
def test_every_trigger_word_is_explained_and_no_other(noun: str) -> None:
    assert set(TRIGGERS[noun]) == set(TABLES[noun].triggers)
    assert all(len(sentence.split()) > 3 for sentence in TRIGGERS[noun].values())
