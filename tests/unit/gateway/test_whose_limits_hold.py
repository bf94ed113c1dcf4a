"""Which limits hold for a request, and what a gateway says of them."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from moorage.decide.serving.routes import Refuse
from moorage.gateway.config import GatewayConfig
from moorage.gateway.hub import Hub
from moorage.gateway.limits import WAIT_S, Limits
from moorage.gateway.spending import Permit
from moorage.gateway.tokens import Tokens
from moorage.wire.routing import (
    Access,
    Binding,
    GatewayReportAnswer,
    KeyRule,
    NamespaceRule,
    RateLimits,
    Slice,
)
from tests.gateway_on_wires import QuietLog

KEYS = (
    KeyRule(uid="k-own", name="a", namespace="n", digest="d1", limits=RateLimits(requests_per_minute=7)),
    KeyRule(uid="k-none", name="b", namespace="n", digest="d2"),
)
ACCESS = Access(number=1, keys=KEYS, namespaces=(NamespaceRule(namespace="n", limits=RateLimits(tokens_per_minute=9)),))
BOUND = Binding(uid="e-1", namespace="n", name="e", limits=RateLimits(requests_per_minute=5, in_flight=2))


@pytest.fixture
def hub() -> Iterator[Hub]:
    loop = asyncio.new_event_loop()
    config = GatewayConfig(server_url="http://c", token="tok", gateway_id="g", state_dir=Path("/nowhere"))
    found = Hub(config, loop, seed=1, id_prefix="req-1", log=QuietLog())
    found.time = lambda: 1000.0
    yield found
    loop.close()


@pytest.fixture
def limits(hub: Hub) -> Limits:
    hub.limits.configure(ACCESS, (BOUND,))
    return hub.limits


@pytest.mark.parametrize(
    ("key", "binding", "subjects"),
    [
        ("", "", {"tokens_per_minute": "namespace/n"}),
        ("k-none", "", {"tokens_per_minute": "namespace/n"}),
        ("k-own", "", {"tokens_per_minute": "namespace/n", "requests_per_minute": "key/k-own"}),
        (
            "k-own",
            "e-1",
            {
                "tokens_per_minute": "namespace/n",
                "requests_per_minute": "key/k-own",
                "in_flight": "key/k-own@endpoint/e-1",
            },
        ),
        (
            "k-none",
            "e-1",
            {
                "tokens_per_minute": "namespace/n",
                "requests_per_minute": "key/k-none@endpoint/e-1",
                "in_flight": "key/k-none@endpoint/e-1",
            },
        ),
        (
            "",
            "e-1",
            {
                "tokens_per_minute": "namespace/n",
                "requests_per_minute": "key/-@endpoint/e-1",
                "in_flight": "key/-@endpoint/e-1",
            },
        ),
    ],
)
def test_a_keys_own_limit_stands_before_that_of_the_endpoint_and_the_namespaces_holds_beside(
    limits: Limits, key: str, binding: str, subjects: dict[str, str]
) -> None:
    account = limits.account("n", key, binding)
    assert {limit.resource: limit.subject for limit in account.limits} == subjects


def test_another_namespace_is_not_limited(limits: Limits) -> None:
    assert limits.account("other", "", "").limits == ()


def told(limits: Limits, share: int, at: float) -> None:
    slices = tuple(Slice(subject=want.subject, resource=want.resource, limit=9, share=share) for want in limits.wants())
    limits.answered(GatewayReportAnswer(slices=slices, slices_epoch="1.1"), at)


def test_a_share_is_kept_to_for_half_a_minute_less_than_the_ledger_holds_it(limits: Limits) -> None:
    account = limits.account("n", "", "")
    told(limits, 9, 1000.0)
    assert not account.lacking(1, 1000.0 + 569.9)
    assert account.lacking(1, 1000.0 + 570.0)


def test_a_limit_that_nobody_used_for_long_is_given_back_and_begins_anew(hub: Hub, limits: Limits) -> None:
    first = limits.account("n", "", "").limits[0]
    told(limits, 9, 1000.0)
    hub.time = lambda: 1121.0
    limits.away = True
    assert [want.share for want in limits.wants()] == [9], "there is nobody who could give it again"
    limits.away = False
    assert limits.wants() == ()
    again = limits.account("n", "", "").limits[0]
    assert again is not first
    assert again.lacks(1, 1121.0)


@pytest.mark.parametrize("changed", [False, True])
def test_a_limit_is_kept_as_long_as_a_request_of_it_runs_whatever_rules_change_meanwhile(
    hub: Hub, limits: Limits, changed: bool
) -> None:
    account = limits.account("n", "", "")
    told(limits, 9, 1000.0)
    permit = Permit(account, 3, 1, 1000.0)
    assert permit.take(1000.0)
    if changed:
        limits.configure(ACCESS, ())
        assert limits.account("n", "", "") is not account
    for now in (1121.0, 1300.0):
        hub.time = lambda now=now: now  # type: ignore[misc]
        assert [want.used for want in limits.wants()] == [0], "forgotten, but not over"
    permit.settle(1300.0, sent=True, failed=False, usage=(1, 7))
    assert [want.used for want in limits.wants()] == [5], "above the three that are forgotten"
    hub.time = lambda: 1421.0
    assert limits.wants() == ()


def test_a_process_that_ends_admits_nothing_more_from_its_last_report_on(limits: Limits) -> None:
    account = limits.account("n", "", "")
    told(limits, 9, 1000.0)
    assert account.take(1, 1000.0)
    assert [(want.share, want.used) for want in limits.last_wants()] == [(0, 1)]
    assert not account.take(1, 1000.0)


def test_rules_that_did_not_change_forget_nothing_and_a_limit_that_is_gone_lets_all_pass(limits: Limits) -> None:
    account = limits.account("n", "", "")
    limits.configure(ACCESS, (BOUND,))
    assert limits.account("n", "", "") is account
    limits.configure(Access(number=2), ())
    assert not limits.active
    assert not account.lacking(10**9, 1e9)  # of those that wait for it


class Asking:
    """A request, and what came of it."""

    def __init__(self) -> None:
        self.permit: Permit | None = None
        self.status = 0
        self.tokens: Tokens | None = None
        self.rate_lines = b""
        self.came: list[str] = []

    def admitted(self) -> None:
        self.came.append("admitted")

    def refuse(self, refusal: Refuse) -> None:
        self.came.append(refusal.code)


def ask(limits: Limits) -> tuple[Asking, Refuse | None]:
    request = Asking()
    return request, limits.admit(request, limits.account("n", "k-none", "e-1"), 4, [b"{}", b'"max_tokens": 1'])


def test_nobody_waits_for_a_share_while_the_control_plane_is_known_to_be_away(limits: Limits) -> None:
    waiting, refusal = ask(limits)
    assert refusal is None
    assert waiting.permit is not None
    assert waiting.permit.waiting, "it has not said yet how much there is"
    limits.away = True
    limits._nudge()
    assert waiting.came == ["limits_unknown"], "who waited already is told"
    _, refusal = ask(limits)
    assert refusal is not None
    assert refusal.code == "limits_unknown"
    limits.away = False
    again, refusal = ask(limits)
    assert refusal is None
    told(limits, 9, 1000.0)
    assert again.came == ["admitted"]


def test_after_each_wait_in_vain_nobody_waits_for_longer_until_a_share_rises(hub: Hub, limits: Limits) -> None:
    now = 1000.0
    hub.time = lambda: now
    waits: list[float] = []
    while now < 1200.0:
        request, refusal = ask(limits)
        if refusal is None:
            waits.append(now)
            now += WAIT_S
            limits._nudge()
            assert request.came == ["limits_unknown"]
        now += 1.0
    gaps = [round(after - before) for before, after in pairwise(waits)]
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps) < 65
    told(limits, 9, now)
    _, refusal = ask(limits)
    assert refusal is None


def numbers(request: Asking) -> dict[str, int]:
    """What a client was told of its limits."""
    pairs = [line.split(": ") for line in request.rate_lines.decode().splitlines()]
    return {name.removeprefix("x-ratelimit-"): int(value) for name, value in pairs if value.isdigit()}


LOWERED = Access(
    number=2, keys=KEYS, namespaces=(NamespaceRule(namespace="n", limits=RateLimits(tokens_per_minute=5)),)
)


@pytest.mark.parametrize("late", [False, True])
def test_a_client_is_never_told_more_than_the_limit_of_the_table_that_is_in_use(limits: Limits, late: bool) -> None:
    first, _ = ask(limits)
    told(limits, 9, 1000.0)
    assert numbers(first)["remaining-tokens"] == 7
    limits.configure(LOWERED, (BOUND,))
    if late:
        told(limits, 9, 1000.0)  # it says the limit as it was, and was on its way
    request, refusal = ask(limits)
    assert refusal is None
    assert numbers(request)["limit-tokens"] == 5
    assert numbers(request)["remaining-tokens"] == 1


def test_of_a_limit_that_is_taken_away_while_a_request_waits_nothing_is_told(hub: Hub, limits: Limits) -> None:
    let_in, _ = ask(limits)
    limits.configure(Access(number=2, keys=KEYS), (BOUND,))
    told(limits, 9, 1000.0)
    assert let_in.came == ["admitted"]
    assert numbers(let_in) == {"limit-requests": 5, "remaining-requests": 4}
    limits.configure(ACCESS, (BOUND,))
    refused, _ = ask(limits)
    limits.configure(Access(number=2, keys=KEYS), (BOUND.model_copy(update={"limits": RateLimits(in_flight=1)}),))
    hub.time = lambda: 1000.0 + WAIT_S
    limits._nudge()
    assert refused.came == ["rate_limit_exceeded"]
    assert numbers(refused) == {}
