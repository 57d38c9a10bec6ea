"""Latency histogram by session: the first pass over the requests, and its arithmetic.

A bucket is one hundredth wide on the natural logarithm of the latency. It is a function
of the latency only, so counts of buckets add up over runs, sessions and machines, and
Spark combines them before the shuffle. Unanswered requests have a separate bucket above
all others.

An exact quantile is the r-th smallest value. The running sum of the counts gives the
bucket of that value and its rank inside. The same counts, minus those of one session,
give both for the jackknife. Only requests of such buckets have to be read again
(``exact_ranks``), and no unanswered ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_analysis.recordings.load import aggregates
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import student_t
from spark_analysis.statistics.quantiles import rank

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

IntArray = npt.NDArray[np.int64]

BUCKETS_PER_E: Final = 100
UNANSWERED: Final = 2**31 - 1
CURVE_POINTS: Final = 240
_ROOM: Final = 1e-9
# The columns of a cell; a row also needs session and latency_ns.
CELL: Final = ("point_index", "class", "arm")
BUCKET: Final = (
    f"IF(latency_ns = double('Infinity'), {UNANSWERED}, "
    f"int(floor(ln(greatest(latency_ns, 1D)) * {BUCKETS_PER_E})))"
)


class GroupKey(NamedTuple):
    """A class under an arm at the point of this index in the manifest."""

    point_index: int
    class_name: str
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """Requests of one cell, a row per session and a column per bucket, ascending."""

    sessions: tuple[int, ...]
    buckets: IntArray
    counts: IntArray

    @property
    def sizes(self) -> IntArray:
        """Requests of each session."""
        found: IntArray = self.counts.sum(axis=1)
        return found


Scope = Literal["own", "pooled", "without"]


class Place(NamedTuple):
    """The place of a wanted value: the ``rank``-th smallest of a scope in a bucket.

    ``level`` is the index of the quantile, ``row`` that of the session (-1: pooled),
    ``column`` that of the bucket.
    """

    level: int
    scope: Scope
    row: int
    column: int
    rank: int


def histogram(
    rows: DataFrame, keys: Sequence[str], sums: Mapping[str, str] | None = None
) -> DataFrame:
    """Count rows with a ``latency_ns`` by keys and bucket, and compute ``sums``."""
    counted = {"n": "count(*)", **(sums or {})}
    frame = rows.selectExpr("*", f"{BUCKET} AS bucket")
    return frame.groupBy(*keys, "bucket").agg(*aggregates(counted))


def by_session(counted: DataFrame, sessions: Sequence[int]) -> DataFrame:
    """Add up counts ``n`` by cell and bucket, to an array with one entry per session.

    A row per session would multiply the shuffled rows by the number of sessions.
    """
    counts = ", ".join(f"sum(IF(session = {s}, n, 0L))" for s in sessions)
    total = aggregates({"n": f"array({counts})"})
    return counted.groupBy(*CELL, "bucket").agg(*total)


def histograms(table: pa.Table, sessions: Sequence[int]) -> dict[GroupKey, Histogram]:
    """Return the histogram of every cell, from the rows of `by_session`.

    Cost: one sort of the rows by two integers.
    """
    whole = np.zeros(len(table), np.int64)
    words: list[list[int | str]] = []
    for name in CELL:
        encoded = table[name].combine_chunks().dictionary_encode()
        words.append(encoded.dictionary.to_pylist())
        whole = whole * len(words[-1]) + encoded.indices.to_numpy()
    order = np.lexsort((table["bucket"].to_numpy(), whole))
    cells, starts = np.unique(whole[order], return_index=True)
    bucket = table["bucket"].to_numpy()[order].astype(np.int64)
    counts = table["n"].combine_chunks().flatten().to_numpy()
    counts = counts.reshape(len(table), len(sessions))[order]
    parts = (np.split(it, starts[1:]) for it in (bucket, counts))
    found = {
        _key(int(cell), words): _histogram(sessions, *part)
        for cell, *part in zip(cells, *parts, strict=False)
    }
    return {key: found[key] for key in sorted(found)}


def _key(code: int, words: Sequence[Sequence[int | str]]) -> GroupKey:
    """Return the cell of a code: the index of each word, in mixed radix."""
    found: list[int | str] = []
    for of in reversed(words):
        code, place = divmod(code, len(of))
        found.append(of[place])
    arm, class_name, point_index = found
    return GroupKey(int(point_index), str(class_name), str(arm))


def _histogram(
    sessions: Sequence[int], buckets: IntArray, counts: IntArray
) -> Histogram:
    """Return the histogram of the sessions that have requests."""
    there = np.flatnonzero(counts.any(axis=0))
    return Histogram(
        sessions=tuple(sessions[i] for i in there.tolist()),
        buckets=buckets,
        counts=np.ascontiguousarray(counts[:, there].T),
    )


def edges(bucket: int) -> tuple[float, float]:
    """Return bounds that enclose a bucket's latencies, and some of its neighbours'.

    The logarithm is rounded, so the bounds have a margin.
    """
    low, high = (math.exp(end / BUCKETS_PER_E) for end in (bucket, bucket + 1))
    return (low * (1 - _ROOM) if bucket else 0.0), high * (1 + _ROOM)


def places(found: Histogram, levels: Sequence[Fraction]) -> Iterator[Place]:
    """Yield the place of every wanted value: own and without by session, and pooled.

    A single session has no other sessions, so no value without it.
    """
    cumulated = found.counts.cumsum(axis=1)
    whole = cumulated.sum(axis=0)
    for level, quantile in enumerate(levels):
        yield _place(whole, quantile, level, "pooled", -1)
        for row, own in enumerate(cumulated):
            yield _place(own, quantile, level, "own", row)
            if len(cumulated) > 1:
                yield _place(whole - own, quantile, level, "without", row)


def _place(
    cumulated: IntArray, quantile: Fraction, level: int, scope: Scope, row: int
) -> Place:
    wanted = rank(int(cumulated[-1]), quantile)
    column = int(np.searchsorted(cumulated, wanted))
    below = int(cumulated[column - 1]) if column else 0
    return Place(level, scope, row, column, wanted - below)


class Ccdf(NamedTuple):
    """Share of the requests at or above each latency, with bounds over sessions."""

    latency_ns: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray


def ccdf(found: Histogram, confidence: float) -> Ccdf:
    """Return the CCDF at the lower end of each bucket, where the share is exact.

    At most ``CURVE_POINTS`` buckets are kept, evenly on a logarithmic scale of shares.
    Unanswered requests count in the shares and have no point. The band is pointwise:
    Student's t of a ratio estimate over sessions.
    """
    above = np.flip(np.flip(found.counts, axis=1).cumsum(axis=1), axis=1)
    total = int(found.counts.sum())
    share = above.sum(axis=0) / total
    wanted = np.geomspace(1.0, 1.0 / total, CURVE_POINTS)
    # Shares fall from left to right.
    kept = np.unique(len(share) - np.searchsorted(share[::-1], wanted, "right"))
    kept = np.unique(np.clip(kept, 0, len(share) - 1))
    kept = kept[found.buckets[kept] != UNANSWERED]
    share = share[kept]
    count = len(found.sessions)
    low, high = np.zeros(len(kept)), np.ones(len(kept))
    if count > 1:
        residuals = above[:, kept] - found.sizes[:, None] * share
        squares = np.sum(residuals**2, axis=0)
        error = np.sqrt(count / (count - 1) * squares) / total
        half = student_t(confidence, count - 1) * error
        low, high = np.maximum(share - half, 0.0), np.minimum(share + half, 1.0)
    return Ccdf(np.exp(found.buckets[kept] / BUCKETS_PER_E), share, low, high)
