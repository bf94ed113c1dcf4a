"""A histogram of durations or rates whose buckets are narrow enough to compare percentiles: what release evidence is.

Sixteen buckets an octave, found from the value's bits alone: a bucket is at most 6.25 % wide, so that a regression of
15 % is several buckets. Values are whole numbers (microseconds; thousandths of a token a second). Sparse: index ->
count, as evidence is carried and kept. Counted by gateways and by the sender of synthetic requests, read by the guard.
"""

from collections.abc import Iterable, Mapping

SUB_BITS = 4
"""Bits after the leading one that choose the bucket."""


def index_of(value: int) -> int:
    """Bucket of a value; negative ones count as 0."""
    if value < 1 << SUB_BITS:
        return max(value, 0)
    shift = value.bit_length() - SUB_BITS - 1
    return (shift << SUB_BITS) + (value >> shift)


def bounds_of(index: int) -> tuple[int, int]:
    """Lowest value of a bucket, and the lowest above it."""
    if index < 1 << (SUB_BITS + 1):
        return index, index + 1
    shift = (index >> SUB_BITS) - 1
    low = ((index & ((1 << SUB_BITS) - 1)) | (1 << SUB_BITS)) << shift
    return low, low + (1 << shift)


def total(counts: Mapping[int, int]) -> int:
    """How many values were counted."""
    return sum(counts.values())


def merged(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """One histogram of several."""
    out: dict[int, int] = {}
    for part in parts:
        for index, count in part.items():
            out[index] = out.get(index, 0) + count
    return out


def ranked(counts: Mapping[int, int], rank: int) -> tuple[int, int]:
    """Bounds of the bucket that holds the value of this rank (1: the smallest), clamped to what is there.

    Raises:
        ValueError: nothing was counted.
    """
    if not counts:
        raise ValueError("an empty histogram has no ranks")
    seen = 0
    ordered = sorted(counts)
    for index in ordered:
        seen += counts[index]
        if seen >= rank:
            return bounds_of(index)
    return bounds_of(ordered[-1])
