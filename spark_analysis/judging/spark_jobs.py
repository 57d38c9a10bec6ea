"""What Spark groups, one job each; only small tables come to this process.

Whatever the number of runs and of points: the distribution per class and arm, the
contrasts as one family per metric, the phases of the slowest requests, and the queue
over time, all at every point at once. NumPy decides inside the groups; sums are of
integers, so neither the partitioning nor the number of workers can change a digit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_analysis.judging.group_functions import (
    Contrast,
    Distribution,
    describe_distribution,
    judge_family,
    spark_schema,
)
from spark_analysis.judging.metrics import Compared
from spark_analysis.judging.run_values import Key, RunValue, logs_by_block
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.session import apply_to_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def distributions(
    window: DataFrame, manifest: Manifest
) -> dict[int, dict[Key, Distribution]]:
    """Return the distribution of every class under every arm, by point."""
    options = manifest.options
    describe = functools.partial(
        describe_distribution,
        quantiles=options.quantiles,
        confidence=options.confidence,
        resamples=options.resamples,
        seed=manifest.seed,
        episodes=manifest.episodes is not None,
    )
    keys = ["point_index", "class", "arm"]
    columns = window.select(*keys, "block", "intended_ns", "latency_ns")
    found = apply_to_groups(columns, keys, describe, spark_schema(Distribution))
    by_point: dict[int, dict[Key, Distribution]] = {}
    for row in found.toArrow().to_pylist():
        one = Distribution(**row)
        by_point.setdefault(one.point_index, {})[Key(one.class_name, one.arm)] = one
    return by_point


def families(
    spark: SparkSession,
    run_values: Sequence[Sequence[RunValue]],
    manifest: Manifest,
    metrics: Sequence[Compared],
) -> dict[tuple[int, str], dict[Key, Contrast]]:
    """Return the contrasts with the baseline, one family per point and metric.

    ``run_values`` are those of each point.
    """
    rows = [
        {
            "point_index": index,
            "metric": metric.name,
            "class": key.class_name,
            "arm": key.arm,
            "block": block,
            "log_ratio": log,
        }
        for metric in metrics
        for index, runs in enumerate(run_values)
        for key in dict.fromkeys(Key(run.class_name, run.arm) for run in runs)
        if key.arm != manifest.baseline
        for block, log in logs_by_block(
            runs, key, manifest.baseline, metric.name
        ).items()
    ]
    if not rows:
        return {}
    judge = functools.partial(
        judge_family,
        margins={metric.name: metric.margin for metric in metrics},
        confidence=manifest.options.confidence,
        seed=manifest.seed,
    )
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    keys = ["point_index", "metric"]
    found = apply_to_groups(frame, keys, judge, spark_schema(Contrast))
    by_family: dict[tuple[int, str], dict[Key, Contrast]] = {}
    for row in found.toArrow().to_pylist():
        one = Contrast(**row)
        family = by_family.setdefault((one.point_index, one.metric), {})
        family[Key(one.class_name, one.arm)] = one
    return by_family
