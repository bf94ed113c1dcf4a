"""A body of tens of megabytes that has to be looked at before it goes on is copied no oftener than it must."""

import tracemalloc
from collections.abc import Callable

import pytest

from moorage.gateway.framing import ChunkCounter
from moorage.gateway.heads import RequestHead, RequestLine
from moorage.gateway.rewriting import replaced, respelled
from moorage.gateway.skim import ModelSkimmer
from moorage.gateway.toplevel import affinity_of

SIZE = 4 << 20
BODY = b'{"messages":[{"role":"user","content":"%b"}],"model":"m"}' % (b"x" * SIZE)
HEAD = RequestHead(RequestLine("POST", "/v1/chat/completions", 1, (), False), b"", len(BODY), True, False, None, None)
ABOUT = 1.01


def most_bytes(work: Callable[[], object]) -> int:
    """The memory that it took at its peak, its result included."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_another_name_late_in_a_body_costs_one_copy_of_it(kind: type[bytes] | type[bytearray]) -> None:
    body, finder = kind(BODY), ModelSkimmer()
    assert finder.feed(body, True) == "m"
    expected = BODY.replace(b'"m"', b'"other"')
    assert replaced(body, finder, "other") == respelled(body, "other") == expected
    assert most_bytes(lambda: replaced(body, finder, "other")) < ABOUT * SIZE
    assert most_bytes(lambda: respelled(body, "other")) < ABOUT * SIZE
    if isinstance(body, bytearray):
        body.clear()  # nothing holds on to it


@pytest.mark.parametrize("whole", [False, True])
def test_chunks_of_what_is_held_cost_one_copy_of_it(whole: bool) -> None:
    counter = ChunkCounter()
    if not whole:
        counter.feed(b"5\r\nab")
    assert counter.reframed(BODY, whole=whole).startswith(b"%x\r\n%b\r\n" % (len(BODY), BODY))
    assert most_bytes(lambda: counter.reframed(BODY, whole=whole)) < ABOUT * SIZE


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_the_beginning_of_a_long_conversation_is_told_without_a_copy_of_all_of_it(
    kind: type[bytes] | type[bytearray],
) -> None:
    body = kind(BODY)
    assert affinity_of("prefix", HEAD, body) == affinity_of("prefix", HEAD, BODY[: SIZE // 2])
    assert most_bytes(lambda: affinity_of("prefix", HEAD, body)) < SIZE / 4
