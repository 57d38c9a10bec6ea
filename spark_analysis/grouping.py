"""What Spark groups, one job each; only small tables come to this process.

Whatever the number of runs and of points: the distribution per class and arm, the
contrasts as one family per metric, the phases of the slowest requests, and the queue
over time, all at every point at once. NumPy
decides inside the groups; sums are of integers, so neither the partitioning nor the
number of workers can change a digit.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_analysis.comparison import Key, QueuePoint, RunValue
from spark_analysis.contract import Manifest
from spark_analysis.groups import (
    CONTRAST,
    DISTRIBUTION,
    contrast_family,
    describe_distribution,
)
from spark_analysis.load import aggregates, bin_ns
from spark_analysis.metrics import Metric
from spark_analysis.phases import PHASES
from spark_analysis.session import apply_to_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]
# What was found at each point, by the point's number.
Placed = dict[int, dict[Key, Row]]


def distributions(window: DataFrame, manifest: Manifest) -> Placed:
    """Return the pooled distribution of every class under every arm, nanoseconds."""
    options = manifest.options
    describe = functools.partial(
        describe_distribution,
        levels=options.levels,
        confidence=options.confidence,
        resamples=options.resamples,
        seed=manifest.seed,
    )
    columns = ("place", "class", "arm", "block", "intended_ns", "latency_ns")
    found = apply_to_groups(
        window.select(*columns), ["place", "class", "arm"], describe, DISTRIBUTION
    )
    return _placed(found)


def contrasts(
    spark: SparkSession,
    run_values: Sequence[Sequence[RunValue]],
    manifest: Manifest,
    metrics: Sequence[Metric],
) -> dict[tuple[int, str, str, str], Row]:
    """Return the contrasts with the baseline, one family per point and metric.

    ``run_values`` are those of each point.
    """
    rows = [
        {
            "place": place,
            "metric": metric.name,
            "class": run.class_name,
            "arm": run.arm,
            "block": run.block,
            "value": run.values[metric.name],
        }
        for metric in metrics
        for place, of_point in enumerate(run_values)
        for run in of_point
    ]
    contrast = functools.partial(
        contrast_family,
        baseline=manifest.baseline,
        margins={metric.name: metric.margin for metric in metrics},
        confidence=manifest.options.confidence,
        seed=manifest.seed,
    )
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    found = apply_to_groups(frame, ["place", "metric"], contrast, CONTRAST)
    return {
        (row["place"], row["class"], row["arm"], row["metric"]): row
        for row in found.toArrow().to_pylist()
    }


def slowest(
    spark: SparkSession,
    window: DataFrame,
    thresholds_ns: Mapping[int, Mapping[Key, float]],
) -> Placed:
    """Return requests and summed phases of answered requests at or beyond a latency."""
    rows = [
        {"place": place, "class": key[0], "arm": key[1], "threshold": threshold}
        for place, of_point in thresholds_ns.items()
        for key, threshold in of_point.items()
    ]
    limits = spark.createDataFrame(pa.Table.from_pylist(rows)).hint("broadcast")
    sums = {"requests": "count(*)", **{p.name: f"sum({p.name})" for p in PHASES}}
    found = (
        window.where("outcome = 'ok'")
        .join(limits, ["place", "class", "arm"])
        .where("latency_ns >= threshold")
        .groupBy("place", "class", "arm")
        .agg(*aggregates(sums))
    )
    return _placed(found)


def _placed(found: DataFrame) -> Placed:
    placed: Placed = {}
    for row in found.toArrow().to_pylist():
        placed.setdefault(row["place"], {})[row["class"], row["arm"]] = row
    return placed


def queue_over_time(
    samples: DataFrame, manifest: Manifest
) -> dict[int, tuple[QueuePoint, ...]]:
    """Return the queue over time: planes summed, then median and range over blocks."""
    run = ("place", "arm", "block", "bin")
    of_plane = samples.groupBy(*run, "plane").agg(
        *aggregates({"queued": "avg(queued)", "waiting": "avg(waiting)"})
    )
    of_block = of_plane.groupBy(*run).agg(
        *aggregates({"queued": "sum(queued)", "waiting": "sum(waiting)"})
    )
    over_blocks = {
        "low": "min(queued)",
        "middle": "median(queued)",
        "high": "max(queued)",
        "waiting": "median(waiting)",
    }
    found = of_block.groupBy("place", "arm", "bin").agg(*aggregates(over_blocks))
    rows = found.toArrow().to_pylist()
    order = {arm.name: rank for rank, arm in enumerate(manifest.arms_compared)}
    rows.sort(key=lambda row: (row["place"], order[row["arm"]], row["bin"]))
    widths = [bin_ns(point.window_ns) for point in manifest.points]
    placed: dict[int, list[QueuePoint]] = {}
    for row in rows:
        point = QueuePoint(
            arm=row["arm"],
            t_s=(row["bin"] + 0.5) * widths[row["place"]] / 1e9,
            queued=row["middle"],
            queued_low=row["low"],
            queued_high=row["high"],
            waiting=row["waiting"],
        )
        placed.setdefault(row["place"], []).append(point)
    return {place: tuple(points) for place, points in placed.items()}
