"""Usage tokens, read from answers that pass: what the server told, else how many events of a stream carried content.

Here: looking at the last bytes of an answer, none of which is kept back or changed, and the gaps between the parts of a
stream. Not here: sums (`measures`), limits. Fed by `exchange`; asked once, when the answer has ended, by `hub`.

Usage is told at the end of an answer: `{"usage": {"prompt_tokens": 9, "completion_tokens": 4, …}}` in a JSON body or in
one of the last events of a stream (`input_tokens` and `output_tokens` in other APIs). Text that a model wrote cannot be
taken for it, since its quotes are escaped, and neither can an object of that name deeper down: what follows it has to
close exactly the levels that the true one has around it.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from moorage.gateway import native

LATER_BYTES_MAX: Final = 8 * 1024
"""Of an answer's end that may wait in memory until it is looked at."""

TAIL_BYTES: Final = 4096
"""Of an answer's end that is looked at; usage and what servers write after it is some hundred bytes."""

GAP_BOUNDS_S: Final = tuple(
    float(f"{digit}e{power}") for power in range(-3, 3) for digit in ("1", "1.5", "2", "3", "5", "7")
)
"""Upper bounds of all time histograms: six a decade, 1 ms to 700 s, so that a p95 is off by a quarter at most. Found
by bisection, which costs no more than the bit length of the milliseconds and tells twice as much."""

_PARTS_MAX: Final = 32
_PART_BYTES_MAX: Final = 8192
_EVENT: Final = b"\ndata:"
_SHORTER_THAN_AN_EVENT: Final = 28
"""`data: [DONE]` and the end of the chunks come at once after the last token: their gaps are none."""

_NUMBERS: Final = (
    rb'[{,\s]"usage"\s*:\s*\{\s*(?:'
    rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12}),\s*(?:"total_tokens"\s*:\s*\d{1,12},\s*)?'
    rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})[ ]*'
    rb'|"completion_tokens"\s*:\s*(\d{1,12}),\s*"prompt_tokens"\s*:\s*(\d{1,12})[ ]*)'
)
"""Usage as nearly all servers write it. A number that the end of a chunk cuts does not fit: a mark has to follow."""
_FLAT = re.compile(_NUMBERS + rb"(?=[,}])")
_FLAT_AND_END = re.compile(_NUMBERS + rb"(?=[,}])(?:[^{}]*+\}){2}[^{}]*+\Z")
"""And what closes then: the usage itself, and the answer. Where nothing opens, strings could only add to it."""
_USAGE = re.compile(rb'[{,\s]"usage"\s*:\s*(?=\{)')
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CHUNK_LINE = re.compile(rb"\r\n[0-9A-Fa-f]{1,15}(?:;[^\r\n]*)?\r\n")
_CONTENT = re.compile(
    rb'"(?:content|text|reasoning_content|reasoning|arguments|thinking|partial_json|delta)"\s*:\s*"(?!")'
)
_new = tuple.__new__
_DECODER = json.JSONDecoder()
_NUMBER_MAX = 10**12


class Tokens(NamedTuple):
    """Of one answer; None where it is not known.

    `counted`: `completion` is the number of events that carried content, since the stream told no usage.
    """

    prompt: int | None
    completion: int | None
    counted: bool = False

    def to_wire(self) -> dict[str, int]:
        """As records have it: `prompt` and `completion` as told, `counted` for what was only counted."""
        if self.counted:
            return {"counted": self.completion or 0}
        told = {"prompt": self.prompt, "completion": self.completion}
        return {name: value for name, value in told.items() if value is not None}


def told_by_body(tail: bytes, front: bytes = b"") -> Tokens | None:
    """Usage of a JSON answer, None when it tells none.

    Args:
        tail: its last bytes, of which TAIL_BYTES are looked at; chunk sizes included where it has them.
        front: its first part, for servers that tell usage before the data.
    """
    if len(tail) > TAIL_BYTES:
        tail = tail[-TAIL_BYTES:]  # so that it costs the same however the answer was cut, and whatever it says
    core = native.core
    if core is None:
        # Where it stands at the beginning, or nowhere, the search is from the beginning and finds nothing.
        found = _FLAT_AND_END.match(tail, tail.rfind(b'"usage"') - 1)
        if found is not None:
            # Not by the class's own constructor, which is a function in Python and costs as much as all of this.
            if found.lastindex == 2:
                return _new(Tokens, (int(found[1]), int(found[2]), False))
            return _flat(found)
    else:
        told = core.usage(tail, Tokens)
        if told is not None:
            return told
    return _told_otherwise(tail, front)


def _told_otherwise(tail: bytes, front: bytes) -> Tokens | None:
    at = tail.rfind(b'"usage"')
    if at > 0:
        found = _FLAT.match(tail, at - 1)
        if found is not None and _closed(tail[found.end() :]) == 2:
            return _flat(found)
    if at > 0 or b"\r\n" in tail:  # the end of a chunk may cut the word itself
        searched = _searched(tail, (1,))
        if searched is not None:
            return searched
    if front is not tail and b'"usage"' in front[:TAIL_BYTES]:
        return _in_front(front[:TAIL_BYTES])
    return None


def columns_of(told: Sequence[Tokens | None]) -> tuple[Sequence[int], Sequence[int]] | None:
    """Those of prompts and those of completions, where each answer told both."""
    if not all(told):
        return None
    prompts, completions, counted = zip(*told, strict=True)
    if any(counted) or not ((all(prompts) or None not in prompts) and (all(completions) or None not in completions)):
        return None
    return prompts, completions


def sums_of(told: Sequence[Tokens | None]) -> tuple[int, int, int]:
    """Tokens of prompts, those of completions as told, and those that were counted only."""
    known = [tokens for tokens in told if tokens is not None]
    if not known:
        return 0, 0, 0
    columns = columns_of(known)
    if columns is not None:
        return sum(columns[0]), sum(columns[1]), 0
    prompts, completions, counted = zip(*known, strict=True)
    prompt = sum([each or 0 for each in prompts])
    only = sum([each or 0 for each, only in zip(completions, counted, strict=True) if only])
    return prompt, sum([each or 0 for each in completions]) - only, only


def tail_of(before: bytes, data: bytes) -> bytes:
    """The end of an answer of which a further part came."""
    return data if len(data) >= TAIL_BYTES else (before + data)[-TAIL_BYTES:]


class Stream:
    """One answer of server-sent events, as it passes.

    Args:
        time: the clock, in seconds.
        gaps: where the gaps between its parts are counted, by `GAP_BOUNDS_S`.
    """

    __slots__ = (
        "_edge",
        "_events",
        "_front",
        "_gaps",
        "_parts",
        "_place_in_c",
        "_size",
        "_tail",
        "_time",
        "first_at",
        "last_at",
    )

    def __init__(self, time: Callable[[], float], gaps: list[int]) -> None:
        self.first_at = 0.0
        """when the first byte of its body came; 0: not yet"""
        self.last_at = 0.0
        self._time = time
        self._gaps = gaps
        core = native.core
        self._place_in_c = None if core is None else core.place
        self._parts: list[bytes] = []
        self._events = 0
        self._edge = b"\n"
        self._front = b""
        self._tail = b""
        self._size = 0

    def feed(self, data: bytes) -> None:
        """A part of the body, chunk sizes included where it has them."""
        size = len(data)
        if size >= _SHORTER_THAN_AN_EVENT:
            now = self._time()
            if self.first_at:
                find = self._place_in_c
                gap_s = now - self.last_at
                self._gaps[bisect_left(GAP_BOUNDS_S, gap_s) if find is None else find(GAP_BOUNDS_S, gap_s)] += 1
            else:
                self.first_at = now
            self.last_at = now
        parts = self._parts
        parts.append(data)
        if len(parts) >= _PARTS_MAX or size > _PART_BYTES_MAX:
            self._fold()

    def tokens(self) -> Tokens | None:
        """What was told, else what was counted; None when there was nothing to count."""
        self._fold()
        tail = _CHUNK_LINE.sub(b"", self._tail)
        told = _searched(tail, (1, 2)) if b'"usage"' in tail else None
        if told is not None:
            if told.prompt is None:  # told when the stream began
                begun = _searched(_CHUNK_LINE.sub(b"", self._front), (1, 2))
                told = Tokens(begun.prompt if begun is not None else None, told.completion)
            return told
        counted = self._with_content(tail)
        return Tokens(None, counted, counted=True) if counted > 0 else None

    # --- inside --------------------------------------------------------------------------------------------------

    def _fold(self) -> None:
        """Count the events of the parts that came, and keep no more of them than the end."""
        data = b"".join(self._parts)
        self._parts.clear()
        if not data:
            return
        # What is left of the part before is shorter than a mark, so no mark is counted twice.
        joined = self._edge + data
        self._events += joined.count(_EVENT)
        self._edge = joined[1 - len(_EVENT) :]
        self._tail = tail_of(self._tail, data)
        if len(self._front) < TAIL_BYTES and self._size < TAIL_BYTES:
            self._front = (self._front + data)[:TAIL_BYTES]
        self._size += len(data)

    def _with_content(self, tail: bytes) -> int:
        """Events less those at both ends that carry none: the role at the beginning, the reason it ended, `[DONE]`."""
        if self._size <= TAIL_BYTES:
            return sum(_CONTENT.search(event) is not None for event in _events(tail))
        front = _events(_CHUNK_LINE.sub(b"", self._front))
        return self._events - _bare(front) - _bare(_events(tail)[::-1])


def _events(data: bytes) -> list[bytes]:
    """What stands behind each mark; the last one may be cut."""
    return (b"\n" + data).split(_EVENT)[1:]


def _bare(events: list[bytes]) -> int:
    """How many of these carry no content before the first that does."""
    for number, event in enumerate(events):
        if _CONTENT.search(event) is not None:
            return number
    return 0


def _flat(found: re.Match[bytes]) -> Tokens:
    if found.lastindex == 2:
        return _new(Tokens, (int(found[1]), int(found[2]), False))
    return _new(Tokens, (int(found[4]), int(found[3]), False))


def _searched(tail: bytes, levels: tuple[int, ...]) -> Tokens | None:
    """The last usage with so many levels around it."""
    tail = _CHUNK_LINE.sub(b"", tail)
    for found in reversed(list(_USAGE.finditer(tail))):
        text = tail[found.end() :].decode("utf-8", "replace")
        try:
            value, end = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            continue
        line = text[end:].partition("\n")[0] if 2 in levels else text[end:]
        if _closed(line.encode()) in levels:
            tokens = _of(value)
            if tokens is not None:
                return tokens
    return None


def _closed(rest: bytes) -> int:
    """How many levels are closed from here to the end, strings aside."""
    bare = _STRING.sub(b"", rest)
    return bare.count(b"}") - bare.count(b"{")


def _in_front(front: bytes) -> Tokens | None:
    """Usage that is told before the data, one level deep from the beginning."""
    start = front.find(b"{")
    for found in _USAGE.finditer(front):
        if _closed(front[start : found.start() + 1]) == -1:
            try:
                value, _ = _DECODER.raw_decode(front[found.end() :].decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                return None
            return _of(value)
    return None


def _of(usage: dict[str, object]) -> Tokens | None:
    prompt = _number(usage, "prompt_tokens", "input_tokens")
    completion = _number(usage, "completion_tokens", "output_tokens")
    return None if prompt is None and completion is None else Tokens(prompt, completion)


def _number(usage: dict[str, object], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if type(value) is int and 0 <= value < _NUMBER_MAX:
            return value
    return None
