"""The pool of ports: nobody's port is given out, and a holder keeps its own."""

import socket

import pytest

from moorage.domain.errors import PortUnavailable
from moorage.runners.ports import PortPool, port_is_free


def test_a_holder_keeps_its_port_and_no_other_gets_it():
    pool = PortPool(range(1, 4), free=lambda _: True)
    assert pool.lease("a") == pool.lease("a")
    assert len({pool.lease(w) for w in "abc"}) == 3


def test_a_port_that_a_stranger_uses_is_passed_over():
    pool = PortPool(range(1, 4), free=lambda p: p != 1)
    assert pool.lease("a") == 2


def test_a_spent_pool_says_who_has_the_ports():
    pool = PortPool(range(1, 4), free=lambda p: p != 2)
    pool.lease("a")
    pool.lease("b")
    with pytest.raises(PortUnavailable, match=r"2 held by workers here, 1 used by other programs") as caught:
        pool.lease("c")
    assert caught.value.remedy


def test_a_port_given_back_rests_while_others_are_free():
    pool = PortPool(range(1, 5), free=lambda _: True)
    first = pool.lease("a")
    pool.give_back("a")
    assert pool.lease("b") != first


def test_a_port_held_by_an_adopted_worker_is_not_given_out():
    pool = PortPool(range(1, 3), free=lambda _: True)
    pool.hold(1, "adopted")
    assert pool.lease("a") == 2
    assert pool.lease("adopted") == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "127.0.0.5"])
def test_a_real_listener_on_any_address_is_noticed(host):
    with socket.socket() as stranger:
        stranger.bind((host, 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        assert not port_is_free(port)
        with pytest.raises(PortUnavailable):
            PortPool([port]).lease("a")
    assert port_is_free(port)


def test_a_listener_on_ipv6_alone_is_noticed():
    try:
        stranger = socket.socket(socket.AF_INET6)
        stranger.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        stranger.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with stranger:
        stranger.listen()
        assert not port_is_free(stranger.getsockname()[1])


def test_connections_that_are_only_dying_do_not_block_a_port():
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the server side closes first and keeps TIME_WAIT
        client.close()
    assert port_is_free(port)
