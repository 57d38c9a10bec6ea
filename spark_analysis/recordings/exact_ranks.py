"""Exact quantiles by session: the second pass, over the wanted buckets only.

Inside a bucket the distinct latencies are sorted, each with its count in every session.
Running sums over this order give, for each latency, the number of requests at or below
it: of a session, of all sessions, and of all but one. The wanted value is the first one
whose running sum reaches the rank. All sums are of integers, so neither the
partitioning nor the number of workers changes a digit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_analysis.recordings.latency_histogram import (
    BUCKET,
    CELL,
    UNANSWERED,
    GroupKey,
    Histogram,
    Place,
    edges,
    places,
)
from spark_analysis.recordings.load import aggregates
from spark_analysis.statistics import FloatArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


RANGES_MAX: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantile:
    """One quantile of one cell, in nanoseconds; arrays are by session.

    ``own`` is the quantile of each session, ``without`` that of all the others (NaN if
    there is none). ``exceedances`` counts the requests at or beyond ``pooled``.
    ``bucket`` is that of ``pooled``, and ``below`` has the sums of the carried columns
    over the faster requests of this bucket.
    """

    pooled: float
    own: FloatArray
    without: FloatArray
    exceedances: Sequence[int]
    bucket: int
    below: Mapping[str, int]


@dataclass(slots=True)
class _Found:
    """Values by place, and the counts and sums below a pooled quantile."""

    values: dict[tuple[int, Place], float] = field(default_factory=dict)
    below: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)


def exact_quantiles(
    spark: SparkSession,
    rows: DataFrame,
    found: Mapping[GroupKey, Histogram],
    levels: Sequence[Fraction],
    carried: Mapping[str, str] | None = None,
) -> dict[GroupKey, tuple[Quantile, ...]]:
    """Return every quantile of every cell, in the order of ``levels``.

    ``found`` is the histogram of ``rows``. ``carried`` are columns to be summed below
    the pooled quantile, by name.
    """
    cells = list(found)
    wanted = {
        (number, place): found[cell]
        for number, cell in enumerate(cells)
        for place in places(found[cell], levels)
    }
    answer = _Found()
    open_places = []
    for (number, place), of in wanted.items():
        if of.buckets[place.column] == UNANSWERED:
            answer.values[number, place] = math.inf
        else:
            open_places.append((number, place))
    if open_places:
        _answer(
            answer,
            open_places,
            second_pass(spark, rows, found, open_places, carried or {}),
            _sessions(found),
            carried or {},
        )
    by_cell: dict[int, list[Place]] = {}
    for number, place in wanted:
        by_cell.setdefault(number, []).append(place)
    return {
        cell: tuple(
            _quantile(
                number,
                [place for place in by_cell[number] if place.level == level],
                found[cell],
                answer,
                carried or {},
            )
            for level in range(len(levels))
        )
        for number, cell in enumerate(cells)
    }


def second_pass(
    spark: SparkSession,
    rows: DataFrame,
    found: Mapping[GroupKey, Histogram],
    open_places: Sequence[tuple[int, Place]],
    carried: Mapping[str, str],
) -> DataFrame:
    """Return the value of each place, by its ``number`` among ``open_places``.

    A pooled value has the counts ``below`` it in its bucket, by session, and the sums
    of the carried columns there. A place is paired with the number of its cell.
    """
    cells = list(found)
    sessions = _sessions(found)
    counts = {f"n{i}": f"count_if(session = {s})" for i, s in enumerate(sessions)}
    sums = {f"sum_{name}": f"sum({sql})" for name, sql in carried.items()}
    buckets = _buckets(spark, cells, found, open_places)
    values = (
        rows.where(_ranges(found, open_places))
        .selectExpr("*", f"{BUCKET} AS bucket")
        .join(buckets, [*CELL, "bucket"])
        .groupBy("cell", "bucket", "latency_ns")
        .agg(*aggregates({"n": "count(*)", **counts, **sums}))
    )
    up_to = (
        "OVER (PARTITION BY cell, bucket ORDER BY latency_ns ROWS UNBOUNDED PRECEDING)"
    )
    running = values.selectExpr(
        "cell",
        "bucket",
        "latency_ns",
        f"array({', '.join(counts)}) AS here",
        f"array({', '.join(f'sum({name}) {up_to}' for name in counts)}) AS reached",
        "n",
        f"sum(n) {up_to} AS n_reached",
        *(f"sum({name}) {up_to} - {name} AS {name}" for name in sums),
    )
    places_frame = _places(spark, cells, found, sessions, open_places)
    rank_here = "wanted_rank > {0} - {1} AND wanted_rank <= {0}"
    own = rank_here.format("reached[place]", "here[place]")
    pooled = rank_here.format("n_reached", "n")
    without = rank_here.format("(n_reached - reached[place])", "(n - here[place])")
    cases = f"WHEN 'own' THEN {own} WHEN 'pooled' THEN {pooled} ELSE {without}"
    return (
        running.join(places_frame, ["cell", "bucket"])
        .where(f"CASE scope {cases} END")
        .selectExpr(
            "number",
            "latency_ns",
            "IF(scope = 'pooled', zip_with(reached, here, (a, b) -> a - b), NULL) "
            "AS below",
            *sums,
        )
    )


def _sessions(found: Mapping[GroupKey, Histogram]) -> list[int]:
    return sorted({name for of in found.values() for name in of.sessions})


def _answer(
    answer: _Found,
    open_places: Sequence[tuple[int, Place]],
    hits: DataFrame,
    sessions: Sequence[int],
    carried: Mapping[str, str],
) -> None:
    for row in hits.toArrow().to_pylist():
        number, place = open_places[row["number"]]
        answer.values[number, place] = row["latency_ns"]
        if place.scope == "pooled":
            counts_below = dict(zip(sessions, row["below"], strict=True))
            below = {name: row[f"sum_{name}"] for name in carried}
            answer.below[number, place.level] = {"counts": counts_below, "sums": below}


def _ranges(
    found: Mapping[GroupKey, Histogram], open_places: Sequence[tuple[int, Place]]
) -> str:
    """Return SQL for a few ranges of latency that contain all wanted buckets.

    A comparison costs a fraction of the logarithm and of the join that it avoids.
    """
    cells = list(found.values())
    buckets = {
        int(cells[number].buckets[place.column]) for number, place in open_places
    }
    ends = [edges(bucket) for bucket in sorted(buckets)]
    merged = [list(ends[0])]
    for low, high in ends[1:]:
        if low <= merged[-1][1]:
            merged[-1][1] = max(high, merged[-1][1])
        else:
            merged.append([low, high])
    while len(merged) > RANGES_MAX:
        gaps = [b[0] / max(a[1], 1.0) for a, b in pairwise(merged)]
        narrow = int(np.argmin(gaps))
        merged[narrow][1] = merged.pop(narrow + 1)[1]
    return " OR ".join(
        f"latency_ns BETWEEN {low!r}D AND {high!r}D" for low, high in merged
    )


def _buckets(
    spark: SparkSession,
    cells: Sequence[GroupKey],
    found: Mapping[GroupKey, Histogram],
    open_places: Sequence[tuple[int, Place]],
) -> DataFrame:
    """Return the distinct buckets to read again: a small table for every worker."""
    wanted = sorted(
        {
            (number, int(found[cells[number]].buckets[place.column]))
            for number, place in open_places
        }
    )
    numbers, buckets = zip(*wanted, strict=True)
    table = pa.table(
        {
            **{
                name: [cells[number][i] for number in numbers]
                for i, name in enumerate(CELL)
            },
            "cell": pa.array(numbers, pa.int32()),
            "bucket": pa.array(buckets, pa.int32()),
        }
    )
    return spark.createDataFrame(table).hint("broadcast")


def _places(
    spark: SparkSession,
    cells: Sequence[GroupKey],
    found: Mapping[GroupKey, Histogram],
    sessions: Sequence[int],
    open_places: Sequence[tuple[int, Place]],
) -> DataFrame:
    """Return the wanted ranks; ``place`` is the session's index among all sessions."""
    index = {name: i for i, name in enumerate(sessions)}
    histograms = [found[cells[number]] for number, _ in open_places]
    table = pa.table(
        {
            "number": pa.array(range(len(open_places)), pa.int32()),
            "cell": pa.array([number for number, _ in open_places], pa.int32()),
            "bucket": pa.array(
                [
                    int(of.buckets[place.column])
                    for of, (_, place) in zip(histograms, open_places, strict=True)
                ],
                pa.int32(),
            ),
            "scope": [place.scope for _, place in open_places],
            "place": pa.array(
                [
                    0 if place.row < 0 else index[of.sessions[place.row]]
                    for of, (_, place) in zip(histograms, open_places, strict=True)
                ],
                pa.int32(),
            ),
            "wanted_rank": pa.array([p.rank for _, p in open_places], pa.int64()),
        }
    )
    return spark.createDataFrame(table).hint("broadcast")


def _quantile(
    number: int,
    wanted: Sequence[Place],
    of: Histogram,
    answer: _Found,
    carried: Mapping[str, str],
) -> Quantile:
    own, without = (np.full(len(of.sessions), math.nan) for _ in range(2))
    for place in wanted:
        value = answer.values[number, place]
        if place.scope == "pooled":
            pooled, column, level = value, place.column, place.level
        else:
            (own if place.scope == "own" else without)[place.row] = value
    below = answer.below.get((number, level))
    quicker = below["counts"] if below else {}
    beyond = of.counts[:, column:].sum(axis=1).tolist()
    return Quantile(
        pooled=pooled,
        own=own,
        without=without,
        exceedances=[
            count - quicker.get(name, 0)
            for name, count in zip(of.sessions, beyond, strict=True)
        ],
        bucket=int(of.buckets[column]),
        below=below["sums"] if below else dict.fromkeys(carried, 0),
    )
