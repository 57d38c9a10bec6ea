"""What Spark groups, one job each; only small tables come to this process.

Whatever the number of runs: the pooled distribution per class and arm, the contrasts as
one family per metric, the phases of all answered requests and of the slowest, and the
queue over time. NumPy decides inside the groups; sums are of integers, so neither the
partitioning nor the number of workers can change a digit.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_analysis.comparison import (
    NS_PER_MS,
    Key,
    PhaseMeans,
    QueuePoint,
    RunValue,
    display_order,
)
from spark_analysis.contract import Manifest
from spark_analysis.groups import (
    CONTRAST,
    DISTRIBUTION,
    contrast_family,
    describe_distribution,
)
from spark_analysis.load import aggregates
from spark_analysis.metrics import Metric, headline_of
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
    columns = ("class", "arm", "block", "intended_ns", "request_id", "latency_ns")
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


def phase_means(
    spark: SparkSession,
    window: DataFrame,
    manifest: Manifest,
    metrics: Sequence[Metric],
    pooled: Mapping[Key, Row],
) -> tuple[PhaseMeans, ...]:
    """Return mean times by phase, of all answered requests and of the slowest."""
    place = [metric.name for metric in metrics].index(headline_of(metrics).name)
    thresholds = [
        {"class": key[0], "arm": key[1], "threshold": row["value"][place]}
        for key, row in pooled.items()
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(thresholds))
    answered = window.where("outcome = 'ok'").join(
        frame.hint("broadcast"), ["class", "arm"]
    )
    slow = "latency_ns >= threshold"
    sums = {
        "requests_all": "count(*)",
        "requests_slow": f"count_if({slow})",
        **{f"{p.name}_all": f"sum({p.name})" for p in PHASES},
        **{f"{p.name}_slow": f"sum(IF({slow}, {p.name}, 0))" for p in PHASES},
    }
    found = (
        answered.groupBy("class", "arm").agg(*aggregates(sums)).toArrow().to_pylist()
    )
    rows = {(row["class"], row["arm"]): row for row in found}
    return tuple(
        _phase_means(rows[key], key, slowest)
        for slowest in (False, True)
        for key in display_order(manifest)
        if key in rows
    )


def _phase_means(row: Row, key: Key, slowest: bool) -> PhaseMeans:
    suffix = "slow" if slowest else "all"
    count = row[f"requests_{suffix}"]
    return PhaseMeans(
        class_name=key[0],
        arm=key[1],
        slowest=slowest,
        requests=count,
        means_ms={
            phase.name: row[f"{phase.name}_{suffix}"] / max(count, 1) / NS_PER_MS
            for phase in PHASES
        },
    )


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
