"""A control plane that is about to start is no trouble; one that stays away, or goes away, is."""

import asyncio
import random
from types import SimpleNamespace

import pytest
import structlog

from moorage.agent.config import AgentConfig
from moorage.agent.link import LinkDenied, LinkDown
from moorage.agent.session import Itself, Session


class Clock:
    """Sleeps pass at once; ends the session once its time is over."""

    def __init__(self, until):
        self.at, self.until = 0.0, until

    def monotonic(self):
        return self.at

    async def sleep(self, seconds):
        self.at += seconds
        if self.at >= self.until:
            raise asyncio.CancelledError


class Away:
    def __init__(self, trouble):
        self.trouble, self.bearer = trouble, None

    async def join(self, message):
        raise self.trouble


class Abilities:
    async def reported(self):
        return ("logs",)


class Engines:
    async def answering(self):
        return ("process",)


async def nothing():
    raise AssertionError("nothing is ended before a join")


async def told(tmp_path, *, until, trouble=None):
    config = AgentConfig(server_url="http://s", name="box", home=tmp_path, token="t")
    means = SimpleNamespace(
        config=config,
        engines=Engines(),
        ledger=None,
        outbox=None,
        contact=None,
        desk=None,
        abilities=Abilities(),
        models=None,
        inventory=SimpleNamespace(gpus=(), pressure=()),
        clock=Clock(until),
        log=structlog.get_logger(),
    )
    link = Away(trouble or LinkDown("join: ConnectError"))
    session = Session(means, link, None, random.Random(1), Itself("inc", "boot", "1"), clear=nothing)
    with structlog.testing.capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await session.run()
    return [line["log_level"] for line in lines]


async def test_a_control_plane_that_is_not_there_yet_is_one_line_of_information(tmp_path):
    assert await told(tmp_path, until=4.5) == ["info"]


async def test_one_that_stays_away_is_warned_of_after_some_seconds(tmp_path):
    levels = await told(tmp_path, until=30.0)
    assert levels[0] == "info"
    assert len(levels) > 2
    assert set(levels[1:]) == {"warning"}


async def test_one_that_answers_with_a_refusal_is_warned_of_at_once(tmp_path):
    assert (await told(tmp_path, until=0.01, trouble=LinkDenied("join: 401"))) == ["warning"]
