"""Quantities: what is written is read back, and what is not a quantity is refused with the forms that are."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.errors import InvalidSpec
from moorage.domain.units import (
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_size,
    show_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("100ms", 0.1),
        ("7d", 604800.0),
        ("1.5s", 1.5),
        ("90", 90.0),
        (" 30s ", 30.0),
        (0, 0.0),
        (2.5, 2.5),
        ("1d2h3m4s5ms", 93784.005),
    ],
)
def test_a_duration_is_read_in_seconds(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512MiB", 512 * 1024**2),
        ("80GiB", 80 * 1024**3),
        ("80GB", 80 * 10**9),
        ("1.5 GiB", 1536 * 1024**2),
        ("1kB", 1000),
        ("1KB", 1000),
        ("12B", 12),
        ("4096", 4096),
        (4096, 4096),
        (4096.0, 4096),
    ],
)
def test_a_size_is_read_in_bytes(text: str | float, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(("text", "milli"), [("2", 2000), ("500m", 500), (0.5, 500), (2, 2000), ("0.25", 250)])
def test_cpu_is_read_in_thousandths_of_a_core(text: str | float, milli: int) -> None:
    assert parse_cpu(text) == milli


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "soon",
        "5 parsecs",
        "-3s",
        "1m1m",
        "s",
        "1e9",
        "1_0",
        "٣s",
        "1h 30m",
        "30S",
        -1,
        math.inf,
        math.nan,
        True,
        None,
        "inf",
    ],
)
def test_what_is_no_duration_is_refused_with_the_forms_that_are(bad: object) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_duration(bad)  # type: ignore[arg-type]
    assert repr(bad) in refused.value.message
    assert "30s" in str(refused.value.remedy)
    assert "7d" in str(refused.value.remedy)


@pytest.mark.parametrize(
    "bad", ["", "big", "3 GIB", "-1GiB", "0.3B", "9999999PiB", 1e300, 0.5, "1e", math.inf, False, None, []]
)
def test_what_is_no_size_is_refused_with_the_forms_that_are(bad: object) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_size(bad)  # type: ignore[arg-type]
    assert "80GiB" in str(refused.value.remedy)


@pytest.mark.parametrize("bad", ["", "m", "two", "-1", "0.0001", "1e9999999", 10**30, "0.5m", math.nan, True, None])
def test_what_is_no_cpu_amount_is_refused_with_the_forms_that_are(bad: object) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_cpu(bad)  # type: ignore[arg-type]
    assert "500m" in str(refused.value.remedy)


@given(st.integers(min_value=0, max_value=10**13))
def test_a_duration_written_to_a_millisecond_is_read_back_exactly(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_size_that_was_written_is_read_back_exactly(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(min_value=0, max_value=10**9))
def test_a_cpu_amount_that_was_written_is_read_back_exactly(milli: int) -> None:
    assert parse_cpu(format_cpu(milli)) == milli


@given(st.text(max_size=12) | st.floats(allow_nan=True, allow_infinity=True) | st.integers())
def test_anything_is_either_a_quantity_or_refused_as_an_invalid_spec(value: str | float) -> None:
    for parse in (parse_duration, parse_size, parse_cpu):
        with contextlib.suppress(InvalidSpec):
            assert 0 <= parse(value) < 2**63 + 1


def test_a_size_is_shown_rounded_for_reading() -> None:
    assert show_size(1536 * 1024**2) == "1.5 GiB"
    assert show_size(5) == "5 B"
