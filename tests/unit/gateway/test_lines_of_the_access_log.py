"""A line of the access log is JSON whatever others named, and says what the general way of writing it would say."""

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.decide.serving.routes import TargetSpec
from moorage.gateway.access_lines import AccessLines, address_of
from moorage.gateway.heads import RequestLine
from moorage.gateway.measures import Record
from moorage.gateway.outcomes import Refused
from moorage.gateway.tokens import Tokens

AT = 1_800_000_000.5

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


def asked(method: str, path: str) -> RequestLine:
    return RequestLine(method, path, 1, (), False)


def plainly(at: float, client: str, line: RequestLine, record: Record) -> dict[str, Any]:
    """The same by the way that knows nothing of speed."""
    told = record.to_wire().model_dump(exclude_none=True)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    first = {"time": f"{stamp}.{int(at * 1000) % 1000:03d}Z", "id": told.pop("request_id"), "client": client}
    said = {**first, "method": line.method, "path": line.path[:500], **told}
    return {name: value for name, value in said.items() if value != ""}


@given(st.lists(st.tuples(st.floats(0, 4e9), names, st.text(max_size=600), records), max_size=4))
def test_a_line_says_what_is_known_and_nothing_else(requests: list[tuple[float, str, str, Record]]) -> None:
    lines = AccessLines()
    for at, client, path, record in requests * 2:  # the second time from parts that are known
        address = address_of((client, 5)) if client.isalnum() and client.isascii() else ""
        text = lines.line(at, address, asked("GET", path), record)
        assert text.isascii()
        assert text.endswith("}\n")
        assert text.count("\n") == 1
        assert json.loads(text) == plainly(at, address, asked("GET", path), record)


def test_what_lines_share_follows_the_replica_and_the_table() -> None:
    lines = AccessLines()
    old = TargetSpec(replica="r", revision="one", host="h", port=1)
    new = TargetSpec(replica="r", revision="two", host="h", port=1)
    base = Record(b"i", "m", "m", 1, old, 0.0, 0.1, 0.2, 200, 5, "ok", None, None, 0)
    told = [
        json.loads(lines.line(AT, "", asked("GET", "/x"), record))
        for record in (base, base._replace(target=new), base._replace(target=new, generation=2), base)
    ]
    assert [(line["revision"], line["generation"]) for line in told] == [("one", 1), ("two", 1), ("two", 2), ("one", 1)]


def test_paths_without_end_cost_no_memory_without_end() -> None:
    lines = AccessLines()
    base = Record(b"i", "m", "m", 1, None, 0.0, None, 0.2, 404, 5, "refused", None, None, 0)
    for number in range(3_000):
        lines.line(AT, "", asked("GET", f"/{number}"), base)
    assert len(lines._parts) <= 1_024
