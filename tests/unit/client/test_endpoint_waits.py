"""A wait for an endpoint ends when every gateway that may route has it, and not before it is published."""

from moorage.cli.watching import sentence
from moorage.client.endpoint_wait import judge_endpoint, lagging
from moorage.client.waiting import Done, KeepPolling


def seen(generation, *gateways):
    told = [{"id": f"gw-{n}", "generation": at} for n, at in enumerate(gateways)]
    return {"kind": "Endpoint", "generation": generation, "gateways": told, "serving": True}


def test_what_is_not_published_is_waited_for():
    assert isinstance(judge_endpoint(seen(None, 9)), KeepPolling)
    assert sentence(seen(None, 9)) == "not published yet"


def test_each_gateway_that_has_not_confirmed_is_named():
    found = seen(7, 7, 6, None)
    assert lagging(found) == ["gw-1", "gw-2"]
    assert judge_endpoint(found) == KeepPolling("generation 7 is not confirmed by gw-1, gw-2")
    assert sentence(found) == "generation 7 is at 1 of 3 gateways, not yet at gw-1, gw-2"


def test_it_is_over_when_all_have_it_or_a_newer_one_and_with_no_gateway_at_once():
    assert judge_endpoint(seen(7, 7, 8)) == Done(True, None)
    assert judge_endpoint(seen(7)) == Done(True, None)
