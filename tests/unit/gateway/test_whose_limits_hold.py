"""Which limits hold for a request, and what a gateway says of them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.gateway.config import GatewayConfig
from moorage.gateway.hub import Hub
from moorage.gateway.limits import Limits
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
    assert limits.wants() == ()
    again = limits.account("n", "", "").limits[0]
    assert again is not first
    assert again.lacks(1, 1121.0)


def test_rules_that_did_not_change_forget_nothing_and_a_limit_that_is_gone_lets_all_pass(limits: Limits) -> None:
    account = limits.account("n", "", "")
    limits.configure(ACCESS, (BOUND,))
    assert limits.account("n", "", "") is account
    limits.configure(Access(number=2), ())
    assert not limits.active
    assert not account.lacking(10**9, 1e9)  # of those that wait for it
