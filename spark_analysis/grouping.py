"""What Spark groups, one job each; only small tables come to this process.

Whatever the number of runs: the distribution per class and arm, the contrasts as one
family per metric, the phases of the slowest requests, and the queue over time. NumPy
decides inside the groups; sums are of integers, so neither the partitioning nor the
number of workers can change a digit.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_analysis.comparison import (
    Key,
    QueuePoint,
    RunValue,
)
from spark_analysis.contract import Manifest
from spark_analysis.groups import (
    CONTRAST,
    DISTRIBUTION,
    contrast_family,
    describe_distribution,
)
from spark_analysis.load import aggregates
from spark_analysis.metrics import Metric
from spark_analysis.phases import PHASES
from spark_analysis.session import apply_to_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUE_BINS: Final = 100
QUEUE_BIN_NS_MIN: Final = 100_000_000

Row = Mapping[str, Any]


def distributions(window: DataFrame, manifest: Manifest) -> dict[Key, Row]:
    """Return the pooled distribution of every class under every arm, nanoseconds."""
    options = manifest.options
    describe = functools.partial(
        describe_distribution,
        levels=options.levels,
        confidence=options.confidence,
        resamples=options.resamples,
        seed=manifest.seed,
    )
    columns = ("class", "arm", "block", "intended_ns", "latency_ns")
    found = apply_to_groups(
        window.select(*columns), ["class", "arm"], describe, DISTRIBUTION
    )
    return {(row["class"], row["arm"]): row for row in found.toArrow().to_pylist()}


def contrasts(
    spark: SparkSession,
    run_values: Sequence[RunValue],
    manifest: Manifest,
    metrics: Sequence[Metric],
) -> dict[tuple[str, str, str], Row]:
    """Return the contrasts with the baseline, one family per metric."""
    rows = [
        {
            "metric": metric.name,
            "class": run.class_name,
            "arm": run.arm,
            "block": run.block,
            "value": run.values[metric.name],
        }
        for metric in metrics
        for run in run_values
    ]
    contrast = functools.partial(
        contrast_family,
        baseline=manifest.baseline,
        margins={metric.name: metric.margin for metric in metrics},
        confidence=manifest.options.confidence,
        seed=manifest.seed,
    )
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    found = apply_to_groups(frame, ["metric"], contrast, CONTRAST)
    return {
        (row["class"], row["arm"], row["metric"]): row
        for row in found.toArrow().to_pylist()
    }


def slowest(
    spark: SparkSession, window: DataFrame, thresholds_ns: Mapping[Key, float]
) -> dict[Key, Row]:
    """Return requests and summed phases of answered requests at or beyond a latency."""
    rows = [
        {"class": key[0], "arm": key[1], "threshold": threshold}
        for key, threshold in thresholds_ns.items()
    ]
    limits = spark.createDataFrame(pa.Table.from_pylist(rows)).hint("broadcast")
    sums = {"requests": "count(*)", **{p.name: f"sum({p.name})" for p in PHASES}}
    found = (
        window.where("outcome = 'ok'")
        .join(limits, ["class", "arm"])
        .where("latency_ns >= threshold")
        .groupBy("class", "arm")
        .agg(*aggregates(sums))
    )
    return {(row["class"], row["arm"]): row for row in found.toArrow().to_pylist()}


def queue_over_time(samples: DataFrame, manifest: Manifest) -> tuple[QueuePoint, ...]:
    """Return the queue over time: planes summed, then median and range over blocks."""
    width = max(QUEUE_BIN_NS_MIN, manifest.window_ns[1] // QUEUE_BINS)
    of_plane = (
        samples.selectExpr("*", f"t_ns DIV {width} AS bin")
        .groupBy("arm", "block", "bin", "plane")
        .agg(*aggregates({"queued": "avg(queued)", "waiting": "avg(waiting)"}))
    )
    of_block = of_plane.groupBy("arm", "block", "bin").agg(
        *aggregates({"queued": "sum(queued)", "waiting": "sum(waiting)"})
    )
    rows = (
        of_block.groupBy("arm", "bin")
        .agg(
            *aggregates(
                {
                    "low": "min(queued)",
                    "middle": "median(queued)",
                    "high": "max(queued)",
                    "waiting": "median(waiting)",
                }
            )
        )
        .toArrow()
        .to_pylist()
    )
    order = {arm.name: rank for rank, arm in enumerate(manifest.arms_compared)}
    rows.sort(key=lambda row: (order[row["arm"]], row["bin"]))
    return tuple(
        QueuePoint(
            arm=row["arm"],
            t_s=(row["bin"] + 0.5) * width / 1e9,
            queued=row["middle"],
            queued_low=row["low"],
            queued_high=row["high"],
            waiting=row["waiting"],
        )
        for row in rows
    )
