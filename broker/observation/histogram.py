"""Counts of values in buckets whose width grows with the value.

As in HdrHistogram, a bucket spans an eighth of a power of two. The relative error of a
quantile is therefore at most 6 % over the whole range of an integer. Adding a value
costs a shift and an increment. Kafka keeps a decaying sample of 1028 values instead,
which misses the tail. This histogram counts all values, and readers compute rates.
"""

from __future__ import annotations

from typing import Final

_SUB_BITS: Final = 3
# Buckets for values below 2**64.
_BUCKETS: Final = (64 - _SUB_BITS + 1) << _SUB_BITS


class Histogram:
    """Non-negative integers by magnitude. Cost: O(1) per value, 4 KB each."""

    __slots__ = ("_counts", "count", "sum")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.sum = 0

    def add(self, value: int) -> None:
        """Count one value."""
        self._counts[bucket_of(value)] += 1
        self.count += 1
        self.sum += value

    def quantile(self, q: float) -> float:
        """Return the middle of the bucket of the ``q`` quantile; 0 if empty."""
        if not self.count:
            return 0.0
        rank = q * self.count
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                low, high = bounds_of(bucket)
                return (low + high) / 2
        return 0.0

    def merge(self, other: Histogram) -> None:
        """Add all values of another histogram."""
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.count += other.count
        self.sum += other.sum


def bucket_of(value: int) -> int:
    """Return the bucket of a value; the first buckets have one value each."""
    shift = value.bit_length() - _SUB_BITS - 1
    if shift <= 0:
        return value
    return (shift << _SUB_BITS) + (value >> shift)


def bounds_of(bucket: int) -> tuple[int, int]:
    """Return the least and the greatest value of a bucket."""
    shift = max((bucket >> _SUB_BITS) - 1, 0)
    low = (bucket - (shift << _SUB_BITS)) << shift
    return low, low + (1 << shift) - 1
