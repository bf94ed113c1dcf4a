"""What goes on in place of a request has one length, the true one, however its head is spelled."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.gateway.heads import RequestHead, RequestLine
from moorage.gateway.rewriting import longer_by, respelled

LINE = RequestLine("POST", "/v1/x", 1, (), False)
NAMES = ("Content-Length", "content-length", "CONTENT-LENGTH", "Content-length")


def head(lines: bytes, length: int) -> RequestHead:
    return RequestHead(LINE, lines, length, True, False, None, None)


others = st.sampled_from(
    (
        b"Host: a\r\n",
        b"X-Content-Length: 5\r\n",
        b"X-Content-Length: 1057\r\n",
        b"X-Said: content-length: 1057\r\n",
        b"Trace: 1057\r\n",
    )
)


@given(
    st.lists(others, max_size=4),
    st.lists(others, max_size=4),
    st.sampled_from(NAMES),
    st.sampled_from((b": %d", b":%d", b":  %d", b":\t%d ", b": 00%d")),
    st.sampled_from((5, 1057)),
    st.integers(-4, 300),
)
def test_the_length_that_is_told_is_the_new_one_and_nothing_else_changes(
    before: list[bytes], after: list[bytes], name: str, form: bytes, length: int, difference: int
) -> None:
    front, back = b"".join(before), b"".join(after)
    own = name.encode() + form % length
    new = longer_by(head(front + own + b"\r\n" + back, length), difference)
    assert new.length == length + difference
    assert new.lines.startswith(front)
    assert new.lines.endswith(back)
    line = new.lines[len(front) : len(new.lines) - len(back)]
    assert re.fullmatch(rb"%b:[ \t]*%d[ \t]*\r\n" % (name.encode(), length + difference), line)


@pytest.mark.parametrize("model", ["m", "org/model-7b", 'a "b"', "ü", "a\\b", "tab\there"])
@pytest.mark.parametrize(
    "body", ['{"model": "x", "n": 1}', '{"n": [{"model": 2}], "model":"x"}', ' { "model" :"\\u0078"}']
)
def test_a_model_of_any_spelling_is_read_by_the_replica_as_it_is_called(model: str, body: str) -> None:
    was = json.loads(body)
    assert json.loads(respelled(body.encode(), model)) == {**was, "model": model}
