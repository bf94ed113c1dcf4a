"""Lines of the access log are the same bytes whether C makes them or Python, and C makes those that are usual."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.gateway import native
from moorage.gateway.access_lines import AccessLines, _filled
from moorage.gateway.heads import RequestLine
from moorage.gateway.records import Batch, Record
from tests.ended import batch_of
from tests.native_core import in_use, the_core
from tests.unit.gateway.test_lines_of_the_access_log import AT_MS, ended

ALIKE = batch_of(*[Record(b"i", "m", "m", 1, None, 0.5, 0.1, 0.2, 200, 5, "ok", None, "k", 0)] * 3)


@pytest.fixture(scope="module")
def core() -> native.NativeCore:
    return the_core()


def in_python(parts: list[Any], number: int) -> list[bytes]:
    with in_use(None):
        return _filled(parts, number)


@st.composite
def filled(draw: st.DrawFn, floats: st.SearchStrategy[float]) -> tuple[list[Any], int]:
    """Parts of lines, one of them a column, and how many lines."""
    number = draw(st.integers(1, 4))
    columns = st.one_of(
        [
            st.lists(items, min_size=number, max_size=number)
            for items in (st.binary(max_size=20), st.text(max_size=9), st.integers(-(2**70), 2**70), floats)
        ]
    )
    parts = draw(st.lists(st.binary(max_size=20) | columns | columns.map(tuple), max_size=8))
    return [*parts, draw(columns)], number


@given(told=filled(st.floats()))
def test_what_c_fills_in_python_fills_in_the_same(told: tuple[list[Any], int], core: native.NativeCore) -> None:
    parts, number = told
    found = core.lines(parts, number)
    assert found is None or found == in_python(parts, number)


@given(value=st.floats(0.0, 2.0**41) | st.integers(0, 2**40).map(lambda number: number / 2**14))
def test_thousandths_are_rounded_as_python_rounds_them(value: float, core: native.NativeCore) -> None:
    """Among these are values in the middle between two thousandths, such as 0.0625."""
    assert core.lines([[value]], 1) == [b"%.3f" % value]


@pytest.mark.parametrize("value", [0.0, 5e-324, 0.0005, 0.0625, 0.1875, 0.9995, 2.5e-17, 999.9995, 2.0**42 - 0.25])
def test_thousandths_at_the_edges_are_pythons(value: float, core: native.NativeCore) -> None:
    assert core.lines([[value]], 1) == [b"%.3f" % value]


@given(told=ended())
def test_a_line_is_the_same_in_both_forms(
    told: tuple[list[Batch], list[int], list[tuple[str, RequestLine]], list[Record]], core: native.NativeCore
) -> None:
    batches, times, requests, _ = told
    with in_use(core):
        in_c = AccessLines().lines(batches, times, requests)
    with in_use(None):
        assert AccessLines().lines(batches, times, requests) == in_c


def test_the_usual_lines_are_made_in_c(core: native.NativeCore) -> None:
    asked = [("127.0.0.1:5", RequestLine("GET", "/100%", 1, (), False))] * 3

    class Only:
        """Which counts what the core answers."""

        def __init__(self) -> None:
            self.made = 0

        def lines(self, parts: Any, number: int, /) -> list[bytes] | None:
            found = core.lines(parts, number)
            self.made += found is not None
            return found

    only: Any = Only()
    with in_use(only):
        AccessLines().lines([ALIKE], [AT_MS] * 3, asked)
        AccessLines().lines([ALIKE], [AT_MS, AT_MS + 999, AT_MS + 9_999], asked)
    assert only.made == 2


class Odd(bytes):
    """What is no exact bytes."""


@pytest.mark.parametrize(
    "parts",
    [
        [[True]],
        [[None]],
        [["\N{SNOWMAN}"]],
        [["\xe9"]],
        [[Odd(b"a")]],
        [Odd(b"a"), [b"a"]],
        [[-1.0]],
        [[-0.0]],
        [[float("nan")]],
        [[2.0**42]],
        [[2**63]],
        [[b"a", b"b"]],
        [[]],
        [{0: b"a"}],
        [b"a"] * 65,
        [b"a" * 20_000],
        [[b"a" * 16_380], [1]],
    ],
)
def test_what_is_not_usual_is_left_to_python(parts: list[Any], core: native.NativeCore) -> None:
    assert core.lines(parts, 1) is None


def test_no_call_keeps_memory_or_a_reference(core: native.NativeCore) -> None:
    column, shared = [b"own", "other"], (None, b"a")
    calls = ([b"a", column, [1, 2], (1.5, 0.25)], [b"a", column, [1.5, None]], [b"a", [1]], [b"a", column, [1.5, -1.0]])
    for parts in calls:
        core.lines(parts, 2)
        before = sys.getallocatedblocks(), [sys.getrefcount(each) for each in (*shared, *column, column)]
        for _ in range(100_000):
            core.lines(parts, 2)
        after = sys.getallocatedblocks(), [sys.getrefcount(each) for each in (*shared, *column, column)]
        assert abs(after[0] - before[0]) < 500, parts
        assert all(abs(now - then) < 500 for now, then in zip(after[1], before[1], strict=True)), parts
    for wrong in ((), ([b"a"],), ((b"a",), 1), ([b"a"], "1")):
        with pytest.raises(TypeError):
            core.lines(*wrong)  # type: ignore[call-arg, arg-type]
