"""A thousand requests at a deployment that sleeps: one wake, nobody refused, nothing lost, nothing left behind.

The long form, which also measures another deployment meanwhile, is `make bench-cold`.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.installation import until
from tests.cold_house import ColdHouse
from tests.flooding import Flooded, Flooding

pytestmark = pytest.mark.acceptance

MANY = 1000
IDLE_FILES = 24
"""Of a gateway with a client or two and no connection to a model server kept."""


class House(ColdHouse):
    """Its sleeper is loaded when the test says so, and answers 64 requests of 4 tokens in 20 ms then."""

    loaded: Path

    def queue(self, length: int) -> None:
        """Have a hold queue of this length."""
        options = ("--base-ms", "5", "--per-seq-ms", "0", "--load-s", "0", "--ready-file", str(self.loaded))
        self.apply(*options, max_queue=length)

    def flooded(self, *options: str, held: int, gone: int = 0) -> tuple[Flooded, Counter[str]]:
        """What came of a flood at it while it sleeps, and what happened to it meanwhile.

        Args:
            held, gone: it loads once so many wait, and so many left.
        """
        self.to_sleep()
        self.loaded.unlink(missing_ok=True)
        before = self.counted()
        flood = Flooding(self.port, self.cold, MANY, *options)
        try:
            until(lambda: self._has(held, gone), f"{held} to wait and {gone} to have left")
            self.loaded.touch()
            came = flood.came()
        finally:
            flood.end()
        return came, self.counted() - before

    def _has(self, held: int, gone: int) -> bool:
        holds = self.gateway_holds()
        return (holds.held, holds.gone) == (held, gone)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("cold")
    with House.up(folder) as it:
        assert isinstance(it, House)
        it.loaded = folder / "loaded"
        yield it


def test_a_thousand_at_once_wake_it_once_and_all_are_answered(house: House) -> None:
    house.queue(2 * MANY)
    came, happened = house.flooded("--streams", str(MANY // 2), held=MANY)
    assert (came.right, came.refused, came.wrong, came.first) == (MANY, 0, [], {"200": MANY})
    assert (happened["deploy.wake_request"], happened["replica.created"]) == (1, 1)
    stats = house.stats()
    assert (stats["asked"], len(set(stats["users"])), stats["early"]) == (MANY, MANY, 0), "each once, and not too early"


def test_a_full_queue_says_when_to_come_back_and_who_does_is_answered(house: House) -> None:
    house.queue(100)
    came, happened = house.flooded("--retry", held=100)
    assert (came.right, came.refused, came.wrong) == (MANY, 0, [])
    assert came.first.keys() == {"200", "429"}
    assert came.first["429"] == len(came.told) > 0, "each of them was told when to come back"
    assert (happened["deploy.wake_request"], happened["replica.created"]) == (1, 1)


def test_those_who_leave_before_the_wake_reach_no_server_and_leave_nothing_behind(house: House) -> None:
    house.queue(2 * MANY)
    leave = MANY // 2
    came, happened = house.flooded("--streams", str(MANY), "--leave", str(leave), held=MANY - leave, gone=leave)
    assert (came.right, came.left, came.wrong) == (MANY - leave, leave, [])
    assert came.comments >= MANY - leave, "the others were told that they wait"
    assert happened["deploy.wake_request"] == 1
    stats = house.stats()
    assert (stats["asked"], [user for user in stats["users"] if user.startswith("leaver")]) == (MANY - leave, [])
    house.settled(IDLE_FILES)
    holds = house.gateway_holds()
    assert (holds.held, holds.in_flight) == (0, 0)
