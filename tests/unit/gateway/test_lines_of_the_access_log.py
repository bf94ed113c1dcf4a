"""A line of the access log is JSON whatever others named, and says what the general way of writing it would say."""

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.decide.serving.routes import TargetSpec
from moorage.gateway.access_lines import AccessLines, address_of
from moorage.gateway.heads import RequestLine
from moorage.gateway.outcomes import Refused
from moorage.gateway.records import Batch, Record
from moorage.gateway.tokens import Tokens
from tests.ended import batch_of

AT_MS = 1_800_000_000_500

names = st.text(max_size=12)
seconds = st.none() | st.floats(min_value=0.0, max_value=5_000.0)
counts = st.none() | st.integers(0, 10**9)
targets = st.builds(
    TargetSpec,
    replica=names,
    revision=names,
    host=st.just("h"),
    port=st.just(1),
    worker=names,
    machine=names,
)
records = st.builds(
    Record,
    request_id=st.from_regex(rb"[A-Za-z0-9._:-]{1,128}", fullmatch=True),
    endpoint=st.text(max_size=250),
    deployment=names,
    generation=st.integers(0, 10**6),
    target=st.none() | targets,
    queued_s=seconds,
    first_s=seconds,
    total_s=st.floats(min_value=0.0, max_value=5_000.0),
    status=st.sampled_from((0, 200, 404, 503)),
    bytes=st.integers(0, 10**12),
    outcome=st.sampled_from(("ok", "refused", "cut", "client_gone", "upstream_error"))
    | st.builds(Refused, st.sampled_from(("refused", "upstream_error")), names, st.text(max_size=250)),
    tokens=st.none() | st.builds(Tokens, counts, counts, st.booleans()),
    key=st.none() | names,
    retried=st.integers(0, 1),
)


requests = st.lists(st.tuples(st.sampled_from((0, 999, 400)), names, st.text(max_size=600)), min_size=1, max_size=6)
"""thousandths since the last one, name of its client's machine, path"""


def asked(method: str, path: str) -> RequestLine:
    return RequestLine(method, path, 1, (), False)


def plainly(at_ms: int, client: str, line: RequestLine, record: Record) -> dict[str, Any]:
    """The same by the way that knows nothing of speed."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000))
    told = record.to_wire().model_dump(exclude_none=True)
    first = {"time": f"{stamp}.{at_ms % 1000:03d}Z", "id": told.pop("request_id"), "client": client}
    said = {**first, "method": line.method, "path": line.path[:500], **told}
    return {name: value for name, value in said.items() if value != ""}


@st.composite
def alike(draw: st.DrawFn, number: int) -> list[Record]:
    """Requests that ended alike: some agree in all but their ids, some in no more than they must."""
    one = draw(records)
    own = st.builds(
        one._replace,
        request_id=st.from_regex(rb"[A-Za-z0-9._:-]{1,12}", fullmatch=True),
        total_s=st.floats(min_value=0.0, max_value=5_000.0),
        bytes=st.integers(0, 10**12),
    )
    if draw(st.booleans()):
        others = draw(st.lists(records, min_size=number, max_size=number))
        return [
            draw(own)._replace(
                queued_s=None if one.queued_s is None else other.queued_s or 0.0,
                first_s=other.first_s,
                outcome=other.outcome if other.outcome == one.outcome else one.outcome,
                tokens=other.tokens,
                key=other.key,
                retried=other.retried,
            )
            for other in others
        ]
    if draw(st.booleans()):
        return [each._replace(first_s=each.total_s) for each in draw(st.lists(own, min_size=number, max_size=number))]
    return draw(st.lists(own, min_size=number, max_size=number))


@st.composite
def ended(draw: st.DrawFn) -> tuple[list[Batch], list[int], list[tuple[str, RequestLine]], list[Record]]:
    """Batches whose numbers lie between each other's, and what is known of all in the order of their ends."""
    told = draw(requests)
    groups = [draw(st.integers(0, 2)) for _ in told]
    begin = draw(st.integers(0, 10**9))
    batches, in_order = [], dict[int, Record]()
    for group in sorted(set(groups)):
        numbers = [begin + place for place, own in enumerate(groups) if own == group]
        members = draw(alike(len(numbers)))
        batches.append(batch_of(*members, numbers=tuple(numbers)))
        in_order |= dict(zip(numbers, members, strict=True))
    at_ms = draw(st.integers(0, 4 * 10**12))
    lines, times = [], []
    for later_ms, client, path in told:
        at_ms += later_ms
        times.append(at_ms)
        address = address_of((client, 5)) if client.isalnum() and client.isascii() else ""
        lines.append((address, asked("GET", draw(st.sampled_from((path, "/v1/chat/completions"))))))
    return batches, times, lines, [in_order[number] for number in sorted(in_order)]


@given(ended())
def test_a_line_says_what_is_known_and_nothing_else(
    told: tuple[list[Batch], list[int], list[tuple[str, RequestLine]], list[Record]],
) -> None:
    batches, times, requests, records = told
    access = AccessLines()
    for _ in range(2):  # the second time from parts that are known
        made = access.lines(batches, times, requests)
        assert len(made) == len(records)
        for at_ms, (address, line), record, text in zip(times, requests, records, made, strict=True):
            assert text.isascii()
            assert text.endswith(b"}\n")
            assert text.count(b"\n") == 1
            assert json.loads(text) == plainly(at_ms, address, line, record)


def one(lines: AccessLines, line: RequestLine, record: Record) -> bytes:
    [text] = lines.lines([batch_of(record)], [AT_MS], [("", line)])
    return text


def test_what_lines_share_follows_the_replica_and_the_table() -> None:
    lines = AccessLines()
    old = TargetSpec(replica="r", revision="one", host="h", port=1)
    new = TargetSpec(replica="r", revision="two", host="h", port=1)
    base = Record(b"i", "m", "m", 1, old, 0.0, 0.1, 0.2, 200, 5, "ok", None, None, 0)
    told = [
        json.loads(one(lines, asked("GET", "/x"), record))
        for record in (base, base._replace(target=new), base._replace(target=new, generation=2), base)
    ]
    assert [(line["revision"], line["generation"]) for line in told] == [("one", 1), ("two", 1), ("two", 2), ("one", 1)]


def test_paths_and_keys_without_end_cost_no_memory_without_end() -> None:
    lines = AccessLines()
    base = Record(b"i", "m", "m", 1, None, 0.0, None, 0.2, 404, 5, "refused", None, None, 0)
    for number in range(3_000):
        one(lines, asked("GET", f"/{number}"), base._replace(key=f"k-{number}"))
    assert len(lines._parts) <= 1_024
    assert len(lines._keys) <= 1_024
