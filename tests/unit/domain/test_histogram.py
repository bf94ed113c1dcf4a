"""Buckets of evidence: every value lies in its own, and none is wider than a sixteenth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.histogram import bounds_of, index_of, merged, ranked, total


@given(st.integers(0, 1 << 48))
def test_every_value_lies_within_its_bucket_and_the_bucket_is_narrow(value):
    low, above = bounds_of(index_of(value))
    assert low <= value < above
    assert above - low <= max(1, low / 16)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_a_larger_value_never_has_a_lower_bucket(one, other):
    assert (index_of(one) <= index_of(other)) or one > other


@given(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=50), st.data())
def test_the_value_of_a_rank_lies_within_the_bounds_that_are_told(values, data):
    counts: dict[int, int] = {}
    for value in values:
        counts = merged((counts, {index_of(value): 1}))
    rank = data.draw(st.integers(1, len(values)))
    low, above = ranked(counts, rank)
    assert low <= sorted(values)[rank - 1] < above
    assert total(counts) == len(values)


def test_an_empty_one_has_no_ranks():
    with pytest.raises(ValueError, match="no ranks"):
        ranked({}, 1)
