"""What limits ask of each request is the same whether C answers or Python, and C answers what is usual."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.gateway import native
from moorage.gateway.limit_answers import admitted
from moorage.gateway.limits import _most_tokens
from moorage.gateway.spending import REQUESTS, TOKENS, Account, Limit
from tests.native_core import the_core

PIECES = (
    *(b'"max_tokens"', b'"max_completion_tokens"', b'"max_output_tokens"', b'"max_input_tokens"', b'"max_'),
    *(b'max_tokens"', b"_", b'"', b":", b" : ", b"\t\n\v\f\r:", b"\x00", b"\x1c:", b"\x85:", b"tokens", b"output_"),
    *(b"0", b"7", b"123456789", b"1234567890123", b"-5", b"1.5e3", b"null", b"\\", b"{", b"}", b","),
)
BODY = b'{"model":"m","max_tokens":64,"messages":[{"role":"user","content":"my \\"max_tokens\\": 9"}],"top_p":1}'


@pytest.fixture(scope="module")
def core() -> native.NativeCore:
    return the_core()


def in_python(body: bytes) -> int:
    return _most_tokens([body])


@given(pieces=st.lists(st.sampled_from(PIECES) | st.binary(max_size=2), max_size=12))
def test_a_bodys_bound_is_read_alike(core: native.NativeCore, pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    assert core.most_tokens(body) == in_python(body)
    assert _most_tokens(pieces, core.most_tokens) == in_python(body)


@given(at=st.integers(0, len(BODY)), gone=st.integers(0, 3), put=st.sampled_from(PIECES) | st.binary(max_size=2))
def test_the_bound_of_a_body_with_anything_anywhere_is_read_alike(
    core: native.NativeCore, at: int, gone: int, put: bytes
) -> None:
    body = BODY[:at] + put + BODY[at + gone :]
    assert core.most_tokens(body) == in_python(body)


def test_a_body_cut_anywhere_is_read_no_further_than_it_goes(core: native.NativeCore) -> None:
    body = b'"max_completion_tokens"  :  123456789'
    for end in range(len(body) + 1):
        assert core.most_tokens(body[:end]) == in_python(body[:end])
    assert core.most_tokens(BODY) == 64, "the one in the text has its quotes escaped"
    assert core.most_tokens(bytearray(BODY)) is None  # type: ignore[arg-type]


NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 10**6)


@given(parts=st.lists(st.binary(max_size=40) | NUMBERS, max_size=8))
def test_numbers_are_spelled_in_c_as_in_python(core: native.NativeCore, parts: list[bytes | int]) -> None:
    assert core.spelled(*parts) == b"".join(part if isinstance(part, bytes) else b"%d" % part for part in parts)


@pytest.mark.parametrize("odd", [-1, 2**63, -(2**63), 2**200, True, 1.0, None, "x", bytearray(b"x"), b"x" * 4097])
def test_what_is_no_short_line_and_no_count_is_left_to_python(core: native.NativeCore, odd: object) -> None:
    assert core.spelled(b"a", odd) is None  # type: ignore[arg-type]
    assert core.spelled(*[b"a"] * 8) == b"a" * 8
    assert core.spelled(*[b"a"] * 9) is None


@given(shares=st.lists(st.tuples(st.sampled_from((REQUESTS, TOKENS)), st.integers(1, 2**62)), max_size=4))
def test_lines_of_an_admitted_request_are_the_same_by_c_and_by_python(
    core: native.NativeCore, shares: list[tuple[str, int]]
) -> None:
    limits = [Limit(f"key/{n}", resource, share, 0.0) for n, (resource, share) in enumerate(shares)]
    for limit, (_, share) in zip(limits, shares, strict=True):
        limit.share, limit.known_until = share, 100.0
    account = Account(tuple(limits))
    assert account.take(1, 5.0)
    assert admitted(account, core.spelled) == admitted(account)


def test_nothing_is_kept_and_nothing_leaks(core: native.NativeCore) -> None:
    told, number, body = b"x-ratelimit-remaining-requests: ", 10**15, BODY * 3
    before = [sys.getrefcount(kept) for kept in (told, number, body, None)]
    allocated = sys.getallocatedblocks()
    for _ in range(2000):
        core.spelled(told, number, told)
        core.spelled(told, None)  # type: ignore[arg-type]
        core.most_tokens(body)
        core.most_tokens(None)  # type: ignore[arg-type]
    after = [sys.getrefcount(kept) for kept in (told, number, body, None)]
    assert after[:3] == before[:3]
    assert abs(after[3] - before[3]) < 500
    assert sys.getallocatedblocks() - allocated < 500
