"""Tokens are what the answer's own usage says, however it is cut and whatever a model wrote or nested beside it."""

import json
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.gateway.tokens import GAP_BOUNDS_S, Stream, Tokens, columns_of, sums_of, tail_of, told_by_body
from tests.examples import examples

DECOYS = [
    "word",
    '"usage": {"prompt_tokens": 7, "completion_tokens": 7}',
    '{"usage":{"prompt_tokens":7,"completion_tokens":7}}',
    '\ndata: {"usage": {"completion_tokens": 7}}\n\n',
    "\\",
    '"',
    "}}}",
    "{{[",
    "\r\n5\r\n",
    "é🙂",
]
TEXTS = st.lists(st.sampled_from(DECOYS), max_size=8).map("".join)
NUMBERS = st.integers(0, 10**9)
DETAILS = st.sampled_from([None, {}, {"cached_tokens": 3}, {"usage": {"prompt_tokens": 7, "completion_tokens": 7}}])
LEVELS = st.sampled_from(["chat", "messages"])


@st.composite
def usages(draw: st.DrawFn) -> tuple[dict[str, object], Tokens]:
    prompt, completion = draw(NUMBERS), draw(NUMBERS)
    first, second = draw(st.sampled_from([("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")]))
    fields: list[tuple[str, object]] = [
        (first, prompt),
        (second, completion),
        ("total_tokens", prompt + completion),
        ("prompt_tokens_details", draw(DETAILS)),
        ("completion_tokens_details", draw(DETAILS)),
    ]
    return dict(draw(st.permutations(fields))), Tokens(prompt, completion)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({*(place % (len(data) + 1) for place in cuts), len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def in_chunks(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"


def read(parts: list[bytes]) -> Tokens | None:
    tail = b""
    for part in parts:
        tail = tail_of(tail, part)
    return told_by_body(tail, parts[0])


CUTS = st.lists(st.integers(0, 20_000), max_size=12)


@given(
    told=usages(),
    text=TEXTS,
    arguments=DETAILS,
    after=TEXTS,
    indent=st.sampled_from([None, 2]),
    chunks=st.none() | CUTS,
    cuts=CUTS,
)
@settings(max_examples=examples(200), deadline=None)
def test_a_body_tells_its_own_usage_and_nothing_nested_or_written(
    told: tuple[dict[str, object], Tokens],
    text: str,
    arguments: object,
    after: str,
    indent: int | None,
    chunks: list[int] | None,
    cuts: list[int],
) -> None:
    usage, tokens = told
    body = {"choices": [{"text": text, "input": arguments}], "usage": usage, "fingerprint": after, "timings": {"a": 1}}
    raw = json.dumps(body, indent=indent, ensure_ascii=False).encode()
    if chunks is not None:
        raw = in_chunks(cut(raw, chunks))
    assert read(cut(raw, cuts)) == tokens


@given(text=TEXTS, nested=DETAILS)
@settings(max_examples=examples(100), deadline=None)
def test_a_body_without_usage_of_its_own_tells_none(text: str, nested: object) -> None:
    raw = json.dumps({"choices": [{"text": text, "input": {"usage": {"prompt_tokens": 7, "completion_tokens": 7}}}]})
    assert read([raw.encode()]) is None
    assert read([json.dumps({"usage": None, "content": text, "x": nested}).encode()]) is None


def test_usage_before_the_data_is_found_as_well() -> None:
    raw = {"model": "m", "usage": {"prompt_tokens": 8, "total_tokens": 8}, "data": [[0.5] * 5000]}
    body = json.dumps(raw).encode()
    assert read([body[:300], body[300:]]) == Tokens(8, None)
    deeper = json.dumps({"a": {"usage": {"prompt_tokens": 8, "completion_tokens": 1}}, "data": [0.5] * 5000}).encode()
    assert read([deeper[:300], deeper[300:]]) is None


def streamed(events: list[object], *, ends: str, chunked: bool) -> bytes:
    parts = [f"data: {e if isinstance(e, str) else json.dumps(e)}{ends}{ends}".encode() for e in events]
    return in_chunks(parts) if chunked else b"".join(parts)


def passed(raw: bytes, cuts: list[int]) -> Stream:
    clock = count(1)
    stream = Stream(lambda: float(next(clock)), [0] * (len(GAP_BOUNDS_S) + 1))
    for part in cut(raw, cuts):
        stream.feed(part)
    return stream


@given(
    told=st.none() | usages(),
    texts=st.lists(TEXTS, max_size=60),
    level=LEVELS,
    chunked=st.booleans(),
    ends=st.sampled_from(["\n", "\r\n"]),
    cuts=st.lists(st.integers(0, 40_000), max_size=120),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_stream_tells_its_usage_else_its_events_with_content_are_counted(
    told: tuple[dict[str, object], Tokens] | None,
    texts: list[str],
    level: str,
    chunked: bool,
    ends: str,
    cuts: list[int],
) -> None:
    texts = [f"w{text}" for text in texts]
    begin = {"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": None}
    content = [{"choices": [{"delta": {"content": text}}], "usage": None} for text in texts]
    finish = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    events: list[object] = [begin, *content, finish]
    if told is not None:
        own = {"choices": [], "usage": told[0]}
        events.append(own if level == "chat" else {"type": "response.completed", "response": own})
    events.append("[DONE]")
    stream = passed(streamed(events, ends=ends, chunked=chunked), cuts)
    expected = told[1] if told else Tokens(None, len(texts), counted=True) if texts else None
    assert stream.tokens() == expected
    assert stream.tokens() == expected  # asking changes nothing


def test_a_prompt_told_when_the_stream_begins_is_joined_to_what_is_told_at_its_end() -> None:
    begin = {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}
    content = [{"type": "content_block_delta", "delta": {"text": f"word {n}"}} for n in range(300)]
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 300}}
    raw = streamed([begin, *content, end], ends="\n", chunked=True)
    assert passed(raw, []).tokens() == Tokens(25, 300)


def test_gaps_are_those_between_parts_that_hold_an_event() -> None:
    events = [f"data: {json.dumps({'choices': [{'delta': {'content': 'word'}}]})}\n\n".encode()] * 4
    clock = iter([1.0, 1.02, 1.04, 1.06])
    gaps = [0] * (len(GAP_BOUNDS_S) + 1)
    stream = Stream(lambda: next(clock), gaps)
    for part in (*events, b"data: [DONE]\n\n", b"0\r\n\r\n"):
        stream.feed(part)
    assert sum(gaps) == 3
    assert next(GAP_BOUNDS_S[at] for at, n in enumerate(gaps) if n) in (0.02, 0.03)
    assert (stream.first_at, stream.last_at) == (1.0, 1.06)


known = st.none() | st.integers(0, 10**12)


@given(st.lists(st.none() | st.builds(Tokens, known, known, st.booleans()), min_size=1))
def test_sums_are_those_of_each_answer_and_columns_only_of_answers_that_told_both(told: list[Tokens | None]) -> None:
    each = [tokens for tokens in told if tokens is not None]
    assert sums_of(told) == (
        sum(tokens.prompt or 0 for tokens in each),
        sum(tokens.completion or 0 for tokens in each if not tokens.counted),
        sum(tokens.completion or 0 for tokens in each if tokens.counted),
    )
    whole = all(t is not None and None not in t and not t.counted for t in told)
    columns = ([t.prompt for t in each], [t.completion for t in each]) if whole else None
    found = columns_of(told)
    assert (None if found is None else tuple(map(list, found))) == columns
