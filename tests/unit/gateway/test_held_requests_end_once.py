"""A held request that its own client spoils is answered once and waits no more; one that came whole only waits."""

import pytest

from moorage.decide.serving.routes import Generation, Limits, RouteSpec, TargetSpec
from tests.gateway_on_wires import World

_LINE = b"POST /endpoints/m/v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
_LENGTH = _LINE + b"Content-Length: 10\r\n\r\n"
_CHUNKED = _LINE + b"Transfer-Encoding: chunked\r\n\r\n"
_WAITS = Limits(queue_timeout_s=300.0)


class _Sleeper:
    """The endpoint `m`, asleep, and a clock."""

    def __init__(self) -> None:
        self.world = World(settings={"body_timeout_s": 2.0})
        self.now = self.world.hub.tick
        self.world.hub.time = lambda: self.now
        self._table(2, "asleep", ())

    def _table(self, number: int, mode: str, targets: tuple[TargetSpec, ...]) -> None:
        route = RouteSpec(name="m", mode=mode, targets=targets, limits=_WAITS)  # type: ignore[arg-type]  # a mode
        self.world.hub.apply(Generation("s", number), [route])
        self.world.turn()

    def wake(self) -> None:
        self._table(3, "serve", (TargetSpec(replica="r-0", revision="rev-1", host="wire", port=1),))

    def passes(self, seconds: float) -> None:
        """Time, and what the sweep does with it."""
        hub = self.world.hub
        self.now += seconds
        hub.tick = self.now
        for client in [client for client in hub.clients if client.deadline < self.now]:
            client.expire(self.now)
        hub.carry_out(hub.router.sweep(self.now))
        self.world.turn()


def test_a_body_that_came_after_its_head_is_not_waited_for_any_more() -> None:
    sleeper = _Sleeper()
    client = sleeper.world.client()
    client.send(_LENGTH, b"0123456789")
    sleeper.passes(10.0)  # longer than a body may take, and less than a request may wait
    assert client.got == b""
    sleeper.wake()
    assert client.statuses == [200]
    sleeper.world.close()
    assert sleeper.world.left_over() == []


@pytest.mark.parametrize(
    ("head", "body", "seconds", "status"),
    [(_LENGTH, b"01", 10.0, 408), (_CHUNKED, b"zz\r\n", 0.0, 400)],
    ids=["stops", "malformed"],
)
def test_what_its_client_spoils_waits_no_more(head: bytes, body: bytes, seconds: float, status: int) -> None:
    sleeper = _Sleeper()
    client = sleeper.world.client()
    client.send(head, body)
    sleeper.passes(seconds)
    sleeper.wake()
    assert (client.statuses, sleeper.world.arrived) == ([status], [])
    sleeper.world.close()
    assert sleeper.world.left_over() == []
