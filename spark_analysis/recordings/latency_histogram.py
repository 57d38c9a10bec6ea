"""Latency histogram by session: the first pass over the requests, and its arithmetic.

A bucket is one hundredth wide on the natural logarithm of the latency. It is a function
of the latency alone, so counts of buckets add up over runs, sessions and machines, and
Spark combines them before the shuffle. Unanswered requests have a bucket of their own,
above all others.

An exact quantile is the r-th smallest value. The running sum of the counts gives the
bucket of that value and its rank inside. The same counts, less those of one session,
give both for the jackknife. Only the requests of such buckets have to be read again
(``exact_ranks``), and none of a bucket whose values are all equal.
"""

from __future__ import annotations

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
    """Requests of one cell, a row per session and a column per bucket, ascending.

    ``lowest`` and ``highest`` are the extreme latencies in each bucket.
    """

    sessions: tuple[int, ...]
    buckets: IntArray
    counts: IntArray
    lowest: FloatArray
    highest: FloatArray

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
    counted = {"n": "count(*)", "lowest": "min(latency_ns)"}
    counted |= {"highest": "max(latency_ns)", **(sums or {})}
    frame = rows.selectExpr("*", f"{BUCKET} AS bucket")
    return frame.groupBy(*keys, "bucket").agg(*aggregates(counted))


def over_runs(counted: DataFrame) -> DataFrame:
    """Add up a finer histogram to cell, session and bucket."""
    total = {"n": "sum(n)", "lowest": "min(lowest)", "highest": "max(highest)"}
    return counted.groupBy(*CELL, "session", "bucket").agg(*aggregates(total))


def histograms(table: pa.Table) -> dict[GroupKey, Histogram]:
    """Return the histogram of every cell, from rows of cell, session and bucket."""
    order = [(name, "ascending") for name in (*CELL, "session", "bucket")]
    table = table.sort_by(order)
    cells = list(zip(*(table[name].to_pylist() for name in CELL), strict=True))
    starts = [i for i, cell in enumerate(cells) if i == 0 or cell != cells[i - 1]]
    columns = {
        name: table[name].to_numpy()
        for name in ("session", "bucket", "n", "lowest", "highest")
    }
    return {
        GroupKey(*cells[start]): _histogram(
            {name: column[start:end] for name, column in columns.items()}
        )
        for start, end in zip(starts, [*starts[1:], len(cells)], strict=True)
    }


def _histogram(rows: Mapping[str, npt.NDArray[np.generic]]) -> Histogram:
    sessions, row = np.unique(rows["session"], return_inverse=True)
    buckets, column = np.unique(rows["bucket"], return_inverse=True)
    counts = np.zeros((len(sessions), len(buckets)), np.int64)
    counts[row, column] = rows["n"]
    lowest, highest = np.full(len(buckets), np.inf), np.full(len(buckets), -np.inf)
    np.minimum.at(lowest, column, rows["lowest"].astype(np.float64))
    np.maximum.at(highest, column, rows["highest"].astype(np.float64))
    return Histogram(
        sessions=tuple(sessions.tolist()),
        buckets=buckets.astype(np.int64),
        counts=counts,
        lowest=lowest,
        highest=highest,
    )


def places(found: Histogram, levels: Sequence[Fraction]) -> Iterator[Place]:
    """Yield the place of every wanted value: own and without by session, and pooled.

    A session that is the only one has nothing to be left out of.
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
    """Return the CCDF at the lowest value of each bucket, where the share is exact.

    At most ``CURVE_POINTS`` buckets are kept, evenly on a logarithmic scale of shares.
    Unanswered requests count in the shares and have no point. The band is Student's t
    of a ratio estimate over sessions, for each value by itself.
    """
    above = np.flip(np.flip(found.counts, axis=1).cumsum(axis=1), axis=1)
    total = int(found.counts.sum())
    share = above.sum(axis=0) / total
    wanted = np.geomspace(1.0, 1.0 / total, CURVE_POINTS)
    # Shares fall from left to right.
    kept = np.unique(len(share) - np.searchsorted(share[::-1], wanted, "right"))
    kept = np.unique(np.clip(kept, 0, len(share) - 1))
    kept = kept[np.isfinite(found.lowest[kept])]
    share = share[kept]
    count = len(found.sessions)
    low, high = np.zeros(len(kept)), np.ones(len(kept))
    if count > 1:
        residuals = above[:, kept] - found.sizes[:, None] * share
        squares = np.sum(residuals**2, axis=0)
        error = np.sqrt(count / (count - 1) * squares) / total
        half = student_t(confidence, count - 1) * error
        low, high = np.maximum(share - half, 0.0), np.minimum(share + half, 1.0)
    return Ccdf(found.lowest[kept], share, low, high)
