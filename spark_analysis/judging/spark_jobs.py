"""What Spark groups, one job each; only small tables come to this process.

Whatever the number of runs and of points: the distribution per class and arm, the
contrasts as one family per metric, the phases of the slowest requests, and the queue
over time, all at every point at once. NumPy decides inside the groups; sums are of
integers, so neither the partitioning nor the number of workers can change a digit.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from spark_analysis.judging.comparison import QueueMoment
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
from spark_analysis.recordings.load import aggregates, bin_ns
from spark_analysis.recordings.phases import PHASES
from spark_analysis.recordings.session import apply_to_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AtPoint(NamedTuple):
    """A class under an arm at one point, which its index in the manifest names."""

    point_index: int
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPhases:
    """The slowest answered requests: how many, and their time in each phase."""

    requests: int
    phase_sums_ns: Mapping[str, int]


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


def slowest(
    spark: SparkSession, window: DataFrame, thresholds_ns: Mapping[AtPoint, float]
) -> dict[AtPoint, SlowPhases]:
    """Return requests and summed phases of answered requests at or beyond a latency."""
    rows = [
        {
            "point_index": at.point_index,
            "class": at.key.class_name,
            "arm": at.key.arm,
            "threshold": threshold,
        }
        for at, threshold in thresholds_ns.items()
    ]
    limits = spark.createDataFrame(pa.Table.from_pylist(rows)).hint("broadcast")
    keys = ["point_index", "class", "arm"]
    sums = {"requests": "count(*)", **{p.name: f"sum({p.name})" for p in PHASES}}
    found = (
        window.where("outcome = 'ok'")
        .join(limits, keys)
        .where("latency_ns >= threshold")
        .groupBy(*keys)
        .agg(*aggregates(sums))
    )
    return {
        AtPoint(row["point_index"], Key(row["class"], row["arm"])): SlowPhases(
            requests=row["requests"],
            phase_sums_ns={phase.name: row[phase.name] for phase in PHASES},
        )
        for row in found.toArrow().to_pylist()
    }


def queue_over_time(
    samples: DataFrame, manifest: Manifest
) -> dict[int, tuple[QueueMoment, ...]]:
    """Return the queue over time: planes summed, then median and range over blocks."""
    run = ("point_index", "arm", "block", "bin")
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
    found = of_block.groupBy("point_index", "arm", "bin").agg(*aggregates(over_blocks))
    rows = found.toArrow().to_pylist()
    order = {arm.name: rank for rank, arm in enumerate(manifest.arms_compared)}
    rows.sort(key=lambda row: (row["point_index"], order[row["arm"]], row["bin"]))
    widths = [bin_ns(point.window_ns) for point in manifest.points]
    by_point: dict[int, list[QueueMoment]] = {}
    for row in rows:
        moment = QueueMoment(
            arm=row["arm"],
            t_s=(row["bin"] + 0.5) * widths[row["point_index"]] / 1e9,
            queued=row["middle"],
            queued_low=row["low"],
            queued_high=row["high"],
            waiting=row["waiting"],
        )
        by_point.setdefault(row["point_index"], []).append(moment)
    return {index: tuple(moments) for index, moments in by_point.items()}
