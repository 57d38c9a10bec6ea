"""The largest value of a sample."""

from __future__ import annotations

from spark_analysis.statistics import FloatArray


def largest(values: FloatArray) -> float:
    """Return the largest of ``values``, which must not be empty."""
    return float(values.max())
