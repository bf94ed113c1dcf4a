"""What one process of a gateway has of `max_in_flight` and `max_queue`, and what it says when that is used up."""

from dataclasses import replace

import pytest

from moorage.decide.serving import refusals
from moorage.decide.serving.routes import EndpointState, RouteSpec
from moorage.gateway import table as tables
from moorage.gateway.table import Part
from moorage.wire.routing import EndpointRoute, GatewayLimits, RoutingTable


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("most", [1, 2, 5, 16, 100])
def test_the_processes_of_a_gateway_send_a_replica_no_more_than_it_takes_unless_each_has_one(
    most: int, processes: int
) -> None:
    parts = [Part(slot, processes).at_replica(most) for slot in range(processes)]
    assert min(parts) >= 1
    assert sum(parts) == max(most, processes)
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("most", [0, 1, 5, 100])
def test_the_processes_of_a_gateway_hold_what_it_may_hold(most: int, processes: int) -> None:
    held = sum(Part(slot, processes).of_queue(most) for slot in range(processes))
    assert most <= held < most + processes


def route_of(part: Part) -> RouteSpec:
    limits = GatewayLimits(max_in_flight=5, max_queue=9)
    route = EndpointRoute(name="m", deployment="m", mode="serve", limits=limits)
    (found,) = tables.routes_of(RoutingTable(incarnation="s", number=1, endpoints=(route,)), part)
    return found


def test_a_full_queue_tells_the_limit_that_a_person_set_and_that_this_is_a_part_of_it() -> None:
    alone, second = route_of(Part()), route_of(Part(1, 2))
    assert (alone.limits.max_in_flight, alone.limits.max_queue) == (5, 9)
    assert (second.limits.max_in_flight, second.limits.max_queue) == (2, 5)
    assert replace(second, limits=alone.limits) == alone
    assert refusals.queue_full(EndpointState(alone), 9, 0.0).message == "endpoint m already holds 9 requests, its limit"
    told = refusals.queue_full(EndpointState(second), 5, 0.0).message
    assert told == "endpoint m already holds 5 requests, this process's part of its 9"
