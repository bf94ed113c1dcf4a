"""Asking gateways about a request: each where it said last that it is, and what is said of one that is silent."""

import httpx
import pytest

from moorage.api.gateways import GatewayBook
from moorage.clock import SystemClock
from moorage.domain.errors import NotFound, Unavailable

UNTRUSTED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)"


class HandClock(SystemClock):
    """Time as a test moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Answers:
    """What is at each host and port; nothing where it is not named."""

    def __init__(self, **at: int | str) -> None:
        self.at = at
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url.host))
        found = self.at.get(str(request.url.host), "Connection refused")
        if isinstance(found, str):
            raise httpx.ConnectError(found)
        return httpx.Response(found, json={"request_id": "r"})


def book(answers: Answers, clock: HandClock) -> GatewayBook:
    return GatewayBook(httpx.AsyncClient(transport=httpx.MockTransport(answers)), clock, "t")


async def test_a_gateway_is_asked_where_one_of_its_processes_said_last_and_elsewhere_only_if_that_is_silent() -> None:
    answers = Answers(new=200)
    asked = book(answers, HandClock())
    asked.remember("g/1", "http://old")
    asked.remember("g/1~2", "http://new")
    assert await asked.request("r") == {"request_id": "r"}
    assert answers.asked == ["new"]
    answers.at = {"old": 404}
    with pytest.raises(NotFound):
        await asked.request("r")
    assert answers.asked == ["new", "new", "old"]


async def test_addresses_that_a_gateway_told_before_are_given_up() -> None:
    clock, answers = HandClock(), Answers(new=404)
    asked = book(answers, clock)
    asked.remember("g", "http://old")
    clock.seconds = 31.0
    asked.remember("g", "http://new")
    answers.at = {}
    with pytest.raises(Unavailable) as told:
        await asked.request("r")
    assert answers.asked == ["new"]
    assert "old" not in told.value.message


async def test_what_is_said_of_a_silent_gateway_names_its_certificate_and_what_to_do() -> None:
    answers = Answers(a=404, b=UNTRUSTED)
    asked = book(answers, HandClock())
    asked.remember("a", "http://a")
    asked.remember("b", "https://b")
    with pytest.raises(Unavailable) as told:
        await asked.request("r")
    assert f"https://b did not answer ({UNTRUSTED})" in told.value.message
    assert "no other gateway knows it" in told.value.message
    assert "SSL_CERT_FILE" in (told.value.remedy or "")
