"""A thousand requests at a deployment that sleeps: one wake, nobody refused, nothing lost, nothing left behind.

The long form, which also measures another deployment meanwhile, is `make bench-cold`.
"""

from collections.abc import Iterator

import pytest

from tests.cold_house import ColdHouse
from tests.flooding import Flooded, Flooding

pytestmark = pytest.mark.acceptance

MANY = 1000
QUICK = ("--base-ms", "5", "--per-seq-ms", "0", "--load-s", "2")
"""64 answers of 4 tokens in 20 ms, once it has loaded; meanwhile streams that wait are told so."""
IDLE_FILES = 24
"""Of a gateway with a client or two and no connection to a model server kept."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdHouse]:
    with ColdHouse.up(tmp_path_factory.mktemp("cold")) as it:
        yield it


def flooded(house: ColdHouse, *options: str) -> tuple[Flooded, dict[str, int]]:
    """What came of a flood at the sleeping deployment, and what happened to the deployment meanwhile."""
    house.to_sleep()
    before = house.counted()
    flood = Flooding(house.port, house.cold, MANY, *options)
    try:
        came = flood.came()
    finally:
        flood.end()
    return came, house.counted() - before


def test_a_thousand_at_once_wake_it_once_and_all_are_answered(house: ColdHouse) -> None:
    house.apply(*QUICK, max_queue=2 * MANY)
    came, happened = flooded(house, "--streams", str(MANY // 2))
    assert (came.right, came.refused, came.wrong, came.first) == (MANY, 0, [], {"200": MANY})
    assert (happened["deploy.wake_request"], happened["replica.created"]) == (1, 1)
    stats = house.stats()
    assert (stats["asked"], len(set(stats["users"])), stats["early"]) == (MANY, MANY, 0), (
        "each once, none before it served"
    )


def test_a_full_queue_says_when_to_come_back_and_who_does_is_answered(house: ColdHouse) -> None:
    house.apply(*QUICK, max_queue=100)
    came, happened = flooded(house, "--retry")
    assert came.first == {"200": 100, "429": MANY - 100}
    assert (came.right, came.refused, came.wrong, len(came.told)) == (MANY, 0, [], MANY - 100)
    assert (happened["deploy.wake_request"], happened["replica.created"]) == (1, 1)


def test_those_who_leave_before_the_wake_reach_no_server_and_leave_nothing_behind(house: ColdHouse) -> None:
    house.apply(*QUICK, max_queue=2 * MANY)
    leave = MANY // 2
    came, happened = flooded(house, "--streams", str(MANY), "--leave", str(leave))
    assert (came.right, came.left, came.wrong) == (MANY - leave, leave, [])
    assert came.comments >= MANY - leave, "the others were told that they wait"
    assert happened["deploy.wake_request"] == 1
    stats = house.stats()
    assert (stats["asked"], [user for user in stats["users"] if user.startswith("leaver")]) == (MANY - leave, [])
    house.settled(IDLE_FILES)
    holds = house.gateway_holds()
    assert (holds.held, holds.in_flight) == (0, 0)
