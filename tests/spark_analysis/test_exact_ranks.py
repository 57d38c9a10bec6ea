"""Two passes in Spark against NumPy on drawn data: equal in all digits."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from spark_analysis.judging.cell_sessions import quantile_sessions
from spark_analysis.recordings.exact_ranks import exact_quantiles
from spark_analysis.recordings.latency_histogram import (
    BUCKETS_PER_E,
    CELL,
    GroupKey,
    by_session,
    histogram,
    histograms,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEVELS = tuple(Fraction(*of) for of in ((1, 2), (19, 20), (99, 100), (999, 1000)))
Drawn = dict[GroupKey, dict[int, npt.NDArray[np.float64]]]


def draw(seed: int) -> Drawn:
    """Draw cells with ties, unanswered requests, absent sessions, single requests.

    Each seed has three points of its own.
    """
    rng = np.random.default_rng(seed)
    cells: Drawn = {}
    for number in range(8):
        point = 3 * seed + number % 3
        key = GroupKey(point, f"class {number % 2}", f"it's arm {number}")
        sessions = rng.choice(12, rng.integers(1, 7), replace=False)
        cells[key] = {}
        for session in sessions.tolist():
            count = int(rng.choice([0, 1, 2, 50, 2000]))
            values = np.round(rng.lognormal(14, rng.uniform(0, 2), count))
            if rng.random() < 0.3:
                values = np.round(values, -6)
            if rng.random() < 0.3:
                values[:] = 5_000_000.0
            values[rng.random(count) < rng.choice([0, 0, 0.02, 0.6])] = np.inf
            cells[key][session] = values
        if not any(len(of) for of in cells[key].values()):
            del cells[key]
    return cells


def table_of(cells: Drawn, rng: np.random.Generator) -> pa.Table:
    rows = [
        (*key, session, value)
        for key, sessions in cells.items()
        for session, values in sessions.items()
        for value in values.tolist()
    ]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    columns = list(zip(*rows, strict=True))
    return pa.table(dict(zip((*CELL, "session", "latency_ns"), columns, strict=True)))


@pytest.mark.spark
def test_all_values_are_numpys(spark: SparkSession) -> None:
    cells = {key: of for seed in range(6) for key, of in draw(seed).items()}
    frame = spark.createDataFrame(table_of(cells, np.random.default_rng(6)))
    frame = frame.repartition(3).selectExpr("*", "'run' AS run")
    numbers = sorted({session for of in cells.values() for session in of})
    counted = by_session(histogram(frame, ["run", *CELL, "session"]), numbers)
    found = histograms(counted.toArrow(), numbers)
    assert found.keys() == cells.keys()
    quantiles = exact_quantiles(spark, frame, found, LEVELS)
    for key, sessions in cells.items():
        for level, quantile in zip(LEVELS, quantiles[key], strict=True):
            expected = quantile_sessions(sessions, level)
            where = f"{key}, {level}"
            assert found[key].sessions == expected.sessions, where
            assert quantile.pooled == expected.pooled, where
            assert tuple(quantile.own) == expected.values, where
            np.testing.assert_array_equal(quantile.without, expected.without, where)
            assert tuple(quantile.exceedances) == expected.exceedances, where
            assert tuple(found[key].sizes) == expected.counts, where


@pytest.mark.spark
def test_carried_columns_add_up_below_the_quantile(spark: SparkSession) -> None:
    rng = np.random.default_rng(7)
    values = np.round(rng.uniform(1e6, 1.5e6, 5000))
    cells: Drawn = {GroupKey(0, "a", "b"): {0: values[:2000], 1: values[2000:]}}
    frame = spark.createDataFrame(table_of(cells, rng))
    counted = by_session(histogram(frame, ["session", *CELL]), [0, 1])
    found = histograms(counted.toArrow(), [0, 1])
    ((quantile,),) = exact_quantiles(
        spark, frame, found, LEVELS[:1], {"whole": "bigint(latency_ns)"}
    ).values()
    inside = np.floor(np.log(values) * BUCKETS_PER_E) == quantile.bucket
    inside &= values < quantile.pooled
    assert inside.any()
    assert quantile.below == {"whole": int(values[inside].sum())}
