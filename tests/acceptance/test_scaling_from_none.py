"""Recorded arrivals at a deployment that scales by itself from none: nothing fails, whatever its size does meanwhile.

Bursts, and silences in which it goes to sleep, 20 times as fast as they were; model servers that take a minute to load
and batch as a real one does. The long form, with figures, is `make bench-azure`.
"""

from pathlib import Path

import pytest

from tests.acceptance.installation import until
from tests.replaying import read
from tests.scaling_house import NAME, Rules, ScalingHouse

pytestmark = pytest.mark.acceptance

TRACE = Path(__file__).parents[1] / "data" / "azure_code_2023.csv"
RULES = Rules(speed=20.0, high=4, target=8.0, options=("--stream-interval", "4"))


def test_no_request_of_a_recorded_burst_fails_while_it_wakes_grows_shrinks_and_sleeps(tmp_path: Path) -> None:
    with ScalingHouse.up(tmp_path, RULES.high) as house:
        house.make(RULES)
        replayed = house.replay(RULES, read(TRACE))
        assert (replayed.wrong, len(replayed.ttft)) == ([], replayed.asked)
        until(lambda: house.phase(NAME) == "SCALED_TO_ZERO", "it to sleep again")
        told = house.told(NAME)
    sizes = [size for _, size in told.sizes]
    assert 1 < told.peak <= RULES.high, f"it was {sizes}"
    assert told.codes["deploy.wake_request"] == told.codes["deploy.idle"] > 0, (
        "it woke once for each time that it slept"
    )
    assert told.codes["replica.failed"] == 0
