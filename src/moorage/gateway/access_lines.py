"""The text of an access log: one JSON line for a request that ended.

Here: what a line says, and the parts of it that many requests share, made once. Not here: when lines are made
(`counting`), where they go (`access_log`). Never in a line: keys, bodies, queries, header lines.

A line is put together from parts, since the general way to write JSON costs ten times as much. Whatever
others named (paths, ids, endpoints, replicas) is written by that way where it has anything to escape.
"""

import json
import time
from typing import Any, Final

from moorage.decide.serving.routes import TargetSpec
from moorage.gateway.heads import RequestLine
from moorage.gateway.outcomes import Refused
from moorage.gateway.tokens import Tokens

_PATH_MAX: Final = 500
_NAME_MAX: Final = 200
_PARTS_MAX: Final = 1024


class _Parts:
    """What the lines share of requests that agree in all of this."""

    __slots__ = ("generation", "last", "route", "target")

    def __init__(self, target: TargetSpec | None, generation: int, route: str, last: str) -> None:
        self.target = target
        self.generation = generation
        self.route = route
        """from the method to the machine"""
        self.last = last
        """deployment"""


class AccessLines:
    """Makes the lines of one process."""

    __slots__ = ("_parts", "_second", "_stamp")

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str, str, str, str], _Parts] = {}
        self._second = -1
        self._stamp = ""

    def line(self, at: float, client: str, asked: RequestLine, record: tuple[Any, ...]) -> str:
        """One line. What is not known is left out.

        Args:
            at: when the request ended, seconds since the epoch.
            client: address of the client's side, as `address_of` writes it.
            asked: its request line.
            record: the fields of a `measures.Record`.
        """
        (
            id_,
            endpoint,
            deployment,
            generation,
            target,
            queued_s,
            first_s,
            total_s,
            status,
            size,
            outcome,
            tokens,
            key,
            retried,
        ) = record
        second = int(at)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        which = (asked.method, asked.path, endpoint, deployment, "" if target is None else target.replica)
        parts = self._parts.get(which)
        if parts is None or parts.target is not target or parts.generation != generation:
            parts = self._remember(which, target, generation)
        whole = f"{1000.0 * total_s:.3f}"
        times = "" if queued_s is None else f',"queued_ms":{1000.0 * queued_s:.3f}' if queued_s else ',"queued_ms":0.0'
        if first_s is not None:
            times += f',"ttft_ms":{whole}' if first_s == total_s else f',"ttft_ms":{1000.0 * first_s:.3f}'
        code = f',"status":{status}' if status else ""
        said = f',"client":"{client}"' if client else ""
        shown = f',"key":{_quoted(key)}' if key else ""
        used = "" if tokens is None else _tokens(tokens)
        again = f',"retried":{retried}' if retried else ""
        return (
            f'{{"time":"{self._stamp}.{int(at * 1000.0) % 1000:03d}Z","id":{_quoted(id_.decode("ascii"))}{said}'
            f'{parts.route}{times},"total_ms":{whole}{code},"bytes":{size}{shown}{parts.last}{used}{again}'
            f',"outcome":"{outcome}"{"" if type(outcome) is str else _why(outcome)}}}\n'
        )

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
        route = f'{_fields(told)},"generation":{generation}{_fields(served)}'
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


def _why(outcome: Refused) -> str:
    return _fields([("error", outcome.error), ("model", outcome.model)])


def _fields(told: list[tuple[str, str]]) -> str:
    return "".join([f',"{name}":{_quoted(value)}' for name, value in told if value])


def _tokens(tokens: Tokens) -> str:
    prompt, completion, counted = tokens
    if counted:
        return f',"tokens":{{"counted":{completion or 0}}}'
    if prompt is not None and completion is not None:
        return f',"tokens":{{"prompt":{prompt},"completion":{completion}}}'
    return f',"tokens":{json.dumps(tokens.to_wire(), separators=(",", ":"))}'


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return json.dumps(text)
