"""However a stream is cut on its way, its events and usage are the same, and what a model writes is none of them."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.gateway.watching import StreamWatch
from tests.examples import examples

TEXTS = st.lists(
    st.sampled_from(["word", "data:", '\ndata: {"error": {}}', '"completion_tokens": 9', "[DONE]", "é\n\n"]),
    max_size=12,
)


def body(texts: list[str], usage: int | None, *, chunked: bool, done: bool) -> bytes:
    events = [json.dumps({"choices": [{"delta": {"content": text}}]}) for text in texts]
    if usage is not None:
        events.append(json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": usage}}))
    if done:
        events.append("[DONE]")
    parts = [f"data: {event}\n\n".encode() for event in events]
    if chunked:
        return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return b"".join(parts)


def watched(stream: bytes, cuts: list[int]) -> StreamWatch:
    watch, start = StreamWatch(), 0
    for number, end in enumerate(sorted({*(cut % (len(stream) + 1) for cut in cuts), len(stream)})):
        watch.feed(stream[start:end], 1.0 + number)
        start = end
    return watch


@given(
    texts=TEXTS,
    usage=st.none() | st.integers(0, 5000),
    chunked=st.booleans(),
    done=st.booleans(),
    cuts=st.lists(st.integers(0, 4000), max_size=30),
)
@settings(max_examples=examples(150), deadline=None)
def test_tokens_are_the_usage_told_else_the_events(
    texts: list[str], usage: int | None, chunked: bool, done: bool, cuts: list[int]
) -> None:
    watch = watched(body(texts, usage, chunked=chunked, done=done), cuts)
    assert watch.tokens() == (usage or len(texts) + (usage is not None))
    assert not watch.failed()


@given(chunked=st.booleans(), cuts=st.lists(st.integers(0, 400), max_size=10))
@settings(max_examples=examples(40), deadline=None)
def test_an_error_that_the_server_tells_in_the_stream_is_one(chunked: bool, cuts: list[int]) -> None:
    stream = body(["word"], None, chunked=False, done=False) + b'data: {"error": {"message": "engine died"}}\n\n'
    if chunked:
        stream = b"%x\r\n%b\r\n0\r\n\r\n" % (len(stream), stream)
    assert watched(stream, cuts).failed()


def test_the_first_byte_is_that_of_the_body() -> None:
    watch = StreamWatch()
    watch.feed(b"", 1.0)
    watch.feed(b"data: x\n\n", 2.0)
    watch.feed(b"data: y\n\n", 3.0)
    assert watch.first_at == 2.0
