"""Requests and answers that come in one turn of the loop are worked on together at its end, and none of them is the
worse for it: not for what ends in the same turn, nor for what comes behind it."""

import pytest

from moorage.decide.serving.routes import Limits
from moorage.gateway.arrivals import TOGETHER_MAX
from tests.gateway_on_wires import OK, World, answers

ASK = b"GET /endpoints/m/x HTTP/1.1\r\nHost: h\r\nX-Request-Id: %b\r\n\r\n"
FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"


def asked(world: World, *names: bytes):
    """Clients that have asked, whose requests are at the replica."""
    clients = [world.client() for _ in names]
    for client, name in zip(clients, names, strict=True):
        client.send(ASK % name)
    return clients


def test_bytes_behind_an_answer_are_not_the_answer_to_the_next_request() -> None:
    world = World(answer=lambda request: None)
    one, other = asked(world, b"one", b"other")
    (first, second) = world.replicas
    # In one turn: the answer, a request that may get the same connection, and what nobody asked for.
    first.give(OK)
    third = world.client()
    third.wire.give(ASK % b"third")
    first.give(FORGED)
    second.give(OK)
    world.turn()
    assert [answers(client.got) for client in (one, other)] == [[(200, b"ok")], [(200, b"ok")]]
    assert b"forged" not in third.got
    assert first.wire.closing, "a connection with bytes that nobody asked for is not used again"
    third_s = next(
        r for r in world.replicas if not r.wire.closing and world.hub.clients and r.raw.endswith(b"third\r\n\r\n")
    )
    third_s.give(OK)
    world.turn()
    assert answers(third.got) == [(200, b"ok")]
    world.close()
    assert world.left_over() == []


def test_bytes_behind_an_answer_are_not_the_answer_to_a_request_that_was_held_for_it() -> None:
    world = World(answer=lambda request: None, limits=Limits(max_in_flight=1))
    (first,) = asked(world, b"one")
    held = world.client()
    held.send(ASK % b"held")
    (replica,) = world.replicas
    replica.give(OK)
    replica.give(FORGED)
    world.turn()
    assert answers(first.got) == [(200, b"ok")]
    assert replica.wire.closing
    (_, fresh) = world.replicas
    fresh.give(OK)
    world.turn()
    assert answers(held.got) == [(200, b"ok")]
    world.close()
    assert world.left_over() == []


def test_an_answer_whose_replica_closes_in_the_same_turn_is_passed_on() -> None:
    world = World(answer=lambda request: None)
    (client,) = asked(world, b"one")
    (replica,) = world.replicas
    replica.give(OK)
    replica.wire.end()
    world.turn()
    assert answers(client.got) == [(200, b"ok")]
    client.send(ASK % b"next")
    assert len(world.replicas) == 2, "the next request has another connection"
    world.close()
    assert world.left_over() == []


def test_an_answer_whose_connection_is_lost_in_the_same_turn_is_passed_on() -> None:
    world = World(answer=lambda request: None)
    (client,) = asked(world, b"one")
    (replica,) = world.replicas
    replica.give(OK)
    replica.wire.protocol.connection_lost(ConnectionResetError())
    assert answers(client.got) == [(200, b"ok")]
    world.turn()
    world.close()
    assert world.left_over() == []


def test_half_an_answer_whose_connection_is_lost_in_the_same_turn_is_none() -> None:
    world = World(answer=lambda request: None)
    (client,) = asked(world, b"one")
    (replica,) = world.replicas
    replica.give(OK[:-1])
    replica.wire.cut(ConnectionResetError())
    world.turn()
    assert answers(client.got) == []
    assert client.wire.closing
    world.close()
    assert world.left_over() == []


def test_a_request_whose_client_sends_no_more_is_answered() -> None:
    world = World()
    client = world.client()
    client.wire.give(ASK % b"one")
    client.wire.end()
    world.turn()
    assert answers(client.got)[-1] == (200, b"ok")
    world.close()
    assert world.left_over() == []


def test_a_request_whose_client_leaves_in_the_same_turn_is_counted() -> None:
    world = World()
    client = world.client()
    client.wire.give(ASK % b"gone")
    client.wire.protocol.connection_lost(None)
    world.turn()
    record = world.hub.counts.ring.find(b"gone")
    assert record is not None
    assert record.outcome == "client_gone"
    world.close()
    assert world.left_over() == []


@pytest.mark.parametrize("cut", range(1, len(ASK % b"one")))
def test_a_request_in_two_pieces_of_one_turn_is_one(cut: int) -> None:
    world = World()
    client = world.client()
    request = ASK % b"one"
    client.wire.give(request[:cut])
    client.wire.give(request[cut:])
    world.turn()
    assert answers(client.got) == [(200, b"ok")]
    assert len(world.arrived) == 1
    world.close()
    assert world.left_over() == []


def test_requests_one_behind_the_other_are_answered_in_order() -> None:
    world = World(
        answer=lambda request: [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + request.target[-1:].encode()]
    )
    client = world.client()
    for number in range(6):
        client.wire.give(b"GET /endpoints/m/%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
    for _ in range(4):
        world.turn()
    assert [body for _, body in answers(client.got, ["GET"] * 6)] == [b"%d" % n for n in range(6)]
    world.close()
    assert world.left_over() == []


def test_a_request_that_has_come_is_not_closed_with_the_idle_connections() -> None:
    world = World()
    client = world.client()
    client.wire.give(ASK % b"one")
    world.hub.drain()
    world.turn()
    assert answers(client.got) == [(200, b"ok")]
    assert client.wire.closing
    world.close()
    assert world.left_over() == []


def test_a_request_that_has_come_is_not_too_late_for_the_sweep() -> None:
    world = World()
    client = world.client()
    client.wire.protocol.deadline = 0.0
    client.wire.give(ASK % b"one")
    world.hub._sweep()
    world.turn()
    assert answers(client.got) == [(200, b"ok")]
    world.hub.stop()
    world.close()


def test_more_than_may_wait_are_all_answered() -> None:
    world = World(limits=Limits(max_in_flight=1000))
    clients = [world.client() for _ in range(3 * TOGETHER_MAX + 1)]
    for number, client in enumerate(clients):
        client.wire.give(ASK % b"%d" % number)
    world.turn()
    world.turn()
    assert [answers(client.got) for client in clients] == [[(200, b"ok")]] * len(clients)
    world.close()
    assert world.left_over() == []


def test_an_error_ends_one_connection_and_the_others_go_on() -> None:
    world = World()
    told: list[str] = []
    world.loop.set_exception_handler(lambda loop, context: told.append(str(context["exception"])))
    rightly = world.hub.time

    def once() -> float:
        world.hub.time = rightly
        raise ArithmeticError("on purpose")

    one, other = world.client(), world.client()
    one.wire.give(ASK % b"one")
    other.wire.give(ASK % b"other")
    world.hub.time = once
    world.turn()
    assert told == ["on purpose"]
    assert one.wire.aborted
    assert answers(one.got) == []
    assert answers(other.got) == [(200, b"ok")]
    world.close()
    assert world.left_over() == []


def test_requests_that_came_before_their_client_s_end_are_all_answered() -> None:
    world = World(answer=lambda request: None)
    client = world.client()
    client.send(ASK % b"one" + ASK % b"two" + ASK % b"three")
    for sent in (1, 2, 3):
        world.replicas[0].give(OK)
        world.hub.arrivals.settle()
        if sent == 1:
            client.wire.end()  # after the first answer, and before the loop goes on with the second request
        world.turn()
    assert [status for status, _ in answers(client.got, ["GET"] * 3)] == [200] * 3
    assert client.wire.closing
    world.close()
    assert world.left_over() == []


def test_a_client_that_ends_in_the_middle_of_its_next_request_is_closed() -> None:
    world = World(answer=lambda request: None)
    client = world.client()
    client.send(ASK % b"one" + (ASK % b"two")[:-3])
    world.replicas[0].give(OK)
    world.hub.arrivals.settle()
    client.wire.end()
    world.turn()
    assert answers(client.got) == [(200, b"ok")]
    assert client.wire.closing
    world.close()
    assert world.left_over() == []


def test_a_connection_that_has_ended_takes_no_held_request() -> None:
    world = World(answer=lambda request: None, limits=Limits(max_in_flight=1))
    (first,) = asked(world, b"one")
    second = world.client()
    second.send((ASK % b"two").replace(b"GET", b"POST"))  # which is not sent once more
    (replica,) = world.replicas
    replica.give(OK)
    replica.wire.end()
    world.turn()
    assert answers(first.got) == [(200, b"ok")]
    (_, fresh) = world.replicas
    assert b"two" in fresh.raw
    fresh.give(OK)
    world.turn()
    assert answers(second.got) == [(200, b"ok")]
    world.close()
    assert world.left_over() == []


def test_what_a_client_sends_behind_its_last_answer_does_not_reset_it() -> None:
    world = World()
    client = world.client()
    last = b"GET /endpoints/m/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    client.send(last + ASK % b"never")
    assert answers(client.got)[0] == (200, b"ok")
    assert client.wire.ended, "its side is shut"
    assert not client.wire.closing, "what still comes is read and dropped for a moment"
    client.wire.give(ASK % b"never either")
    world.turn()
    assert len(world.arrived) == 1
    client.wire.cut()
    world.close()
    assert world.left_over() == []
