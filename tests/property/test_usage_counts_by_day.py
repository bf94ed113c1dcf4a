"""Each request with a key counts on the day (UTC) on which it ended by the gateway's clock, to its last moment."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving.routes import Generation, RouteSpec, TargetSpec
from moorage.domain.usage import day_of, ends_at
from moorage.gateway.config import GatewayConfig
from moorage.gateway.frontend import ClientConnection
from moorage.gateway.hub import Hub
from moorage.gateway.usage import UsageCounts
from tests.examples import examples
from tests.gateway_on_wires import QuietLog

MIDNIGHT = 20_834 * 86_400.0
"""The first moment of a day."""
TABLE = [RouteSpec(name="m", mode="serve", targets=(TargetSpec(replica="r", revision="1", host="h", port=1),))]


class Life:
    """Usage of a gateway whose clock is set by hand."""

    def __init__(self, hub: Hub, now: float) -> None:
        self.hub = hub
        self.now = now
        self.looked_at = now
        self.usage = hub.usage = UsageCounts(lambda: self.now, lambda: 0.0)
        self.expected: Counter[str] = Counter()
        assert hub.apply(Generation("s", 1), TABLE)

    def pass_s(self, seconds: float) -> None:
        """As the gateway does, the day is looked at once a second, here as late as it may be."""
        while seconds > 0:
            step = min(seconds, max(0.0, self.looked_at + 1.0 - self.now))
            self.now += step
            seconds -= step
            if self.now >= self.looked_at + 1.0:
                self.look()

    def look(self) -> None:
        self.usage.look_at_day()
        self.looked_at = self.now

    def end(self) -> None:
        client: Any = ClientConnection(self.hub)
        client.tenant, client.status = "key-1", 200
        endpoint = self.hub.router.find("m")
        assert endpoint is not None
        self.usage.ended(client, endpoint, "ok")
        self.expected[day_of(self.now)] += 1

    def counted(self) -> Counter[str]:
        return Counter({each.day: each.requests for each in self.usage.left("g", "i")})


@contextmanager
def life_from(now: float) -> Iterator[Life]:
    loop = asyncio.new_event_loop()
    config = GatewayConfig(server_url="http://c", token="tok", gateway_id="g", state_dir=Path("/nowhere"))
    try:
        yield Life(Hub(config, loop, seed=1, id_prefix="req-1", log=QuietLog()), now)
    finally:
        loop.close()


STEPS = st.lists(
    st.sampled_from(("end", "end", "end", "report", 0.001, 0.01, 0.3, 0.3, 0.5, 0.999, 1.0)), min_size=20, max_size=60
)


@given(before_s=st.sampled_from((0.0, 0.001, 0.4, 0.9, 1.0, 1.7, 60.0, 61.5)), steps=STEPS)
@settings(max_examples=examples(300), deadline=None)
def test_a_request_counts_on_the_day_on_which_it_ended(before_s: float, steps: list[str | float]) -> None:
    with life_from(MIDNIGHT - before_s) as life:
        for sequence, step in enumerate(steps):
            if isinstance(step, float):
                life.pass_s(step)
            elif step == "end":
                life.end()
            else:
                life.usage.tell(sequence)
        assert life.counted() == life.expected


@pytest.mark.parametrize("late_s", [0.0, 0.001, 0.9, 45.0])
def test_what_ends_right_after_midnight_counts_on_the_new_day_though_nobody_has_looked_at_the_day_yet(
    late_s: float,
) -> None:
    with life_from(MIDNIGHT - 0.1) as life:
        life.end()
        life.now = MIDNIGHT - 0.0001
        life.end()
        life.now = MIDNIGHT + late_s
        life.end()
        life.end()
        assert life.counted() == {day_of(MIDNIGHT - 1.0): 2, day_of(MIDNIGHT): 2}


def test_the_day_of_a_clock_that_is_set_back_stays_until_the_clock_has_passed_it() -> None:
    with life_from(MIDNIGHT + 5.0) as life:
        life.end()
        life.now = MIDNIGHT - 5.0
        life.end()
        life.look()
        life.end()
        assert life.counted() == {day_of(MIDNIGHT): 3}
        life.now = ends_at(MIDNIGHT) + 0.5
        life.look()
        life.end()
        assert life.counted() == {day_of(MIDNIGHT): 3, day_of(ends_at(MIDNIGHT)): 1}


def test_the_clock_is_asked_once_a_second_but_for_the_last_minute_of_a_day() -> None:
    with life_from(MIDNIGHT - 7_200.0) as life:
        asked = []

        def clock() -> float:
            asked.append(life.now)
            return life.now

        life.usage = UsageCounts(clock, lambda: 0.0)
        asked.clear()
        for _ in range(500):
            life.end()
        assert not asked
        life.look()
        assert len(asked) == 1
        assert life.counted() == life.expected
