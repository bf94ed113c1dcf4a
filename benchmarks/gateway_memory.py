"""Memory of a peer of the gateway's benchmark for each client: idle connections, open streams.

Each figure is taken from a process that is started for it alone, so that nothing it freed before hides what it needs:
PSS of all its processes after some requests, and again with all clients there, divided by their number. What a peer has
laid out beforehand for connections that it may get (nginx: some 400 bytes for each of its `worker_connections`) is
in the first figure, and so not counted; kernel memory of sockets is the same for all, and not counted either.

LiteLLM takes no part: at some thirty requests a second it would take minutes to give each connection its first one.
"""

import contextlib
import selectors
import socket
import time
from collections.abc import Iterator

from gateway_load import Figures, connect, read_answer
from gateway_meter import pss_bytes
from gateway_peers import SLOW_PACE, Peer

_AT_ONCE = 16
_PACE_S = 1
_STEADY = 0.003
_LOOK_S, _PATIENCE_S = 0.4, 6.0


def idle_connections(peer: Peer, count: int) -> Figures:
    """`bytes` a client that had one request answered and keeps its connection; `mib`, all that the peer has then."""
    with contextlib.ExitStack() as stack:
        _warm(peer)
        before = _steady_bytes(peer)
        for _ in range(count // _AT_ONCE):
            some = [stack.enter_context(connect(peer)) for _ in range(_AT_ONCE)]
            for connection in some:
                connection.sendall(peer.post())
            for connection in some:
                read_answer(connection)
        return _figures(before, _steady_bytes(peer), count // _AT_ONCE * _AT_ONCE)


def open_streams(peer: Peer, count: int) -> Figures:
    """The same of clients that each read a stream of which a part comes each second; two have come of each."""
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        _warm(peer)
        before = _steady_bytes(peer)
        request = peer.post_for_stream(**{SLOW_PACE.replace("-", "_"): str(_PACE_S)})
        parts = {}
        for _ in range(count):
            connection = stack.enter_context(connect(peer))
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ)
            parts[connection] = 0
        until = time.monotonic() + 60
        while min(parts.values()) < 2:
            assert time.monotonic() < until, f"{peer.name}: some streams have no parts"
            for connection in _ready(selector, _LOOK_S):
                parts[connection] += _read_parts(peer, connection)
        for _ in _steps_of(peer):
            end = time.monotonic() + _LOOK_S
            while (left_s := end - time.monotonic()) > 0:
                for connection in _ready(selector, left_s):
                    _read_parts(peer, connection)
        return _figures(before, pss_bytes(_pid(peer)), count)


def _ready(selector: selectors.BaseSelector, wait_s: float) -> Iterator[socket.socket]:
    for key, _ in selector.select(wait_s):
        assert isinstance(key.fileobj, socket.socket)
        yield key.fileobj


def _read_parts(peer: Peer, connection: socket.socket) -> int:
    got = connection.recv(65536)
    assert got, f"{peer.name} ended a stream"
    assert not got.startswith(b"HTTP/") or b" 200 " in got[:16], got
    return got.count(b"data: ")


def _warm(peer: Peer) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(peer)) for _ in range(_AT_ONCE)]
        for _ in range(10):
            for connection in connections:
                connection.sendall(peer.post())
            for connection in connections:
                read_answer(connection)


def _steady_bytes(peer: Peer) -> int:
    for _ in _steps_of(peer):
        time.sleep(_LOOK_S)
    return pss_bytes(_pid(peer))


def _steps_of(peer: Peer) -> Iterator[None]:
    """Until its memory does not change any more, or for some seconds."""
    until, before = time.monotonic() + _PATIENCE_S, 0
    while time.monotonic() < until:
        yield
        now = pss_bytes(_pid(peer))
        if abs(now - before) <= _STEADY * now:
            return
        before = now


def _pid(peer: Peer) -> int:
    assert peer.pid is not None
    return peer.pid


def _figures(before: int, after: int, count: int) -> Figures:
    return {"bytes": (after - before) / count, "mib": after / 2**20}
