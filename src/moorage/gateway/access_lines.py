"""The text of an access log: one JSON line for a request that ended.

Here: what a line says, and the parts of it that many requests share, made once. Not here: when lines are made
(`counting`), where they go (`access_log`). Never in a line: keys, bodies, queries, header lines.

Lines are made for all requests that ended alike at once, out of parts: bytes that all of them share, and columns of
what is each one's own. That costs a tenth of the general way to write JSON. Whatever others named (paths, endpoints,
replicas) is written by that way where it has anything to escape.
"""

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from moorage.decide.serving.routes import TargetSpec
from moorage.gateway import native
from moorage.gateway.heads import RequestLine
from moorage.gateway.outcomes import Refused
from moorage.gateway.records import Batch, picked
from moorage.gateway.tokens import Tokens

_PATH_MAX: Final = 500
_NAME_MAX: Final = 200
_PARTS_MAX: Final = 1024
_THOUSANDTHS: Final = tuple(b"%03d" % number for number in range(1000))
_SHOWN: Final[dict[type, bytes]] = {bytes: b"%b", str: b"%b", int: b"%d", float: b"%.3f"}


class _Parts:
    """What the lines share of requests that agree in all of this."""

    __slots__ = ("generation", "last", "route", "target")

    def __init__(self, target: TargetSpec | None, generation: int, route: bytes, last: bytes) -> None:
        self.target = target
        self.generation = generation
        self.route = route
        """from the method to the machine"""
        self.last = last
        """deployment"""


class AccessLines:
    """Makes the lines of one process."""

    __slots__ = ("_keys", "_parts", "_second", "_stamp")

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str, str, str, str], _Parts] = {}
        self._keys: dict[str, bytes] = {"": b""}
        self._second = -1
        self._stamp = b""

    def lines(
        self, batches: Sequence[Batch], at_ms: list[int], asked: Sequence[tuple[str, RequestLine]]
    ) -> list[bytes]:
        """Lines of requests, in the order in which those ended. What is not known is left out.

        Args:
            batches: all of them; together their numbers are of a row.
            at_ms: when each ended, milliseconds since the epoch, in that order.
            asked: address of each one's client as `address_of` writes it, and its request line.
        """
        addresses, heads = zip(*asked, strict=True)
        if len(batches) == 1:
            return self._lines(batches[0], at_ms, addresses, heads)
        begin = min([batch.numbers[0] for batch in batches])
        lines = [b""] * len(at_ms)
        for batch in batches:
            places = [number - begin for number in batch.numbers]
            made = self._lines(
                batch,
                list(picked(at_ms, places)),
                picked(addresses, places),
                picked(heads, places),
            )
            for place, line in zip(places, made, strict=True):
                lines[place] = line
        return lines

    def _lines(
        self, batch: Batch, at_ms: list[int], addresses: tuple[str, ...], heads: tuple[RequestLine, ...]
    ) -> list[bytes]:
        routes = self._routes(batch, heads)
        return _filled(
            [
                *self._times(at_ms),
                b'Z","id":"',
                batch.request_ids,
                b'"',
                *_clients(addresses),
                routes[0].route if len(routes) == 1 else [each.route for each in routes],
                *_durations(batch),
                b',"status":%d,"bytes":' % batch.status if batch.status else b',"bytes":',
                batch.bytes,
                *self._named(batch.keys),
                routes[0].last,
                *_used(batch),
                b"" if not any(batch.retried) else [b',"retried":%d' % each if each else b"" for each in batch.retried],
                b',"outcome":"%b"' % batch.outcomes[0].encode(),
                b"" if batch.outcomes[0] == "ok" else list(map(_why, batch.outcomes)),
                b"}\n",
            ],
            len(at_ms),
        )

    def _times(self, at_ms: list[int]) -> list[Any]:
        fractions = [_THOUSANDTHS[each % 1000] for each in at_ms]
        second = min(at_ms) // 1000
        if max(at_ms) // 1000 == second:
            return [b'{"time":"%b.' % self._stamp_of(second), fractions]
        stamps = [self._stamp_of(each // 1000) for each in at_ms]
        return [b'{"time":"', stamps, b".", fractions]

    def _stamp_of(self, second: int) -> bytes:
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode("ascii")
        return self._stamp

    def _named(self, keys: Sequence[str]) -> list[Any]:
        key = keys[0]
        if keys.count(key) == len(keys):
            return [self._key(key)]
        return [[self._key(each) for each in keys]]

    def _key(self, name: str) -> bytes:
        known = self._keys.get(name)
        if known is None:
            if len(self._keys) >= _PARTS_MAX:
                self._keys = {"": b""}
            known = self._keys[name] = _fields([("key", name)])
        return known

    def _routes(self, batch: Batch, requests: Sequence[RequestLine]) -> list[_Parts]:
        """One where all asked for the same, else each one's."""
        line = requests[0]
        if requests.count(line) == len(requests):
            return [self._route(batch, line)]
        return [self._route(batch, each) for each in requests]

    def _route(self, batch: Batch, line: RequestLine) -> _Parts:
        target = batch.target
        which = (line.method, line.path, batch.endpoint, batch.deployment, "" if target is None else target.replica)
        parts = self._parts.get(which)
        if parts is None or parts.target is not target or parts.generation != batch.generation:
            return self._remember(which, target, batch.generation)
        return parts

    def _remember(self, which: tuple[str, str, str, str, str], target: TargetSpec | None, generation: int) -> _Parts:
        method, path, endpoint, deployment, _ = which
        told: list[tuple[str, str]] = [
            ("method", method),
            ("path", path[:_PATH_MAX]),
            ("endpoint", endpoint[:_NAME_MAX]),
        ]
        served: list[tuple[str, str]] = []
        if target is not None:
            served = [
                ("revision", target.revision),
                ("replica", target.replica),
                ("worker", target.worker),
                ("machine", target.machine),
            ]
        route = b'%b,"generation":%d%b' % (_fields(told), generation, _fields(served))
        parts = _Parts(target, generation, route, _fields([("deployment", deployment)]))
        if len(self._parts) >= _PARTS_MAX:
            self._parts.clear()
        self._parts[which] = parts
        return parts


def address_of(peer: Any) -> str:
    """`host:port` of an address as a socket tells it; that of a Unix socket is none."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"
    return ""


def _filled(parts: Sequence[Any], number: int) -> list[bytes]:
    """So many lines.

    Args:
        parts: of each line; bytes are in all of them, of a column each has its own: bytes, text, a number, or one with
            three decimals.
        number: of lines.
    """
    core = native.core
    if core is not None:
        lines = core.lines(parts, number)
        if lines is not None:
            return lines
    form = b"".join([part.replace(b"%", b"%%") if type(part) is bytes else _SHOWN[type(part[0])] for part in parts])
    columns = [part for part in parts if type(part) is not bytes]
    columns = [map(str.encode, column) if type(column[0]) is str else column for column in columns]
    return list(map(form.__mod__, zip(*columns, strict=True)))


def _clients(addresses: Sequence[str]) -> list[Any]:
    if all(addresses):
        return [b',"client":"', addresses, b'"']
    return [[b',"client":"%b"' % each.encode() if each else b"" for each in addresses]]


def _durations(batch: Batch) -> list[Any]:
    total = [1000.0 * each for each in batch.total_s]
    queued_s, first_s = batch.queued_s, batch.first_s
    told: list[Any] = []
    if queued_s is not None:
        told += [b',"queued_ms":', [1000.0 * each for each in queued_s]] if any(queued_s) else [b',"queued_ms":0.0']
    if first_s is batch.total_s:
        told += [b',"ttft_ms":', total]
    elif first_s.count(None) < len(first_s):
        told.append([b"" if each is None else b',"ttft_ms":%.3f' % (1000.0 * each) for each in first_s])
    return [*told, b',"total_ms":', total]


def _used(batch: Batch) -> list[Any]:
    """Tokens, as the answers told them or as they were counted."""
    if batch.told is not None:
        return [b',"tokens":{"prompt":', batch.told[0], b',"completion":', batch.told[1], b"}"]
    return [list(map(_tokens, batch.tokens))] if any(batch.tokens) else []


def _tokens(tokens: Tokens | None) -> bytes:
    if tokens is None:
        return b""
    return b',"tokens":%b' % json.dumps(tokens.to_wire(), separators=(",", ":")).encode("ascii")


def _why(outcome: str) -> bytes:
    return _fields([("error", outcome.error), ("model", outcome.model)]) if isinstance(outcome, Refused) else b""


def _fields(told: list[tuple[str, str]]) -> bytes:
    return "".join([f',"{name}":{json.dumps(value)}' for name, value in told if value]).encode("ascii")
