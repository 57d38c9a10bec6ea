"""Recovery of a class after a burst: its time, and the resulting delay.

An interval follows each burst. The time to recover runs from the start of the interval
to the intended instant of its last request that misses the objective of its class. It
is 0 if none does, and infinite if the interval's last request does, because the class
has not recovered by then. The area is the latency beyond the objective, summed over all
requests of the interval. It is infinite if one has no good answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.latency_histogram import CELL
from spark_analysis.recordings.load import aggregates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def recoveries(
    spark: SparkSession, requests: DataFrame, manifest: Manifest
) -> DataFrame:
    """Return ``recovery_ns`` and ``area_ns`` by cell and session: means of intervals.

    Classes without an objective have neither, and intervals without a request do not
    count.
    """
    missed = "max(IF(latency_ns > slo_ns, intended_ns, NULL))"
    ends = requests.join(_intervals(spark, manifest), ["point_index", "class"]).where(
        "intended_ns >= start_ns AND intended_ns < until_ns"
    )
    of_interval = ends.groupBy(*CELL, "session", "run_id", "start_ns").agg(
        *aggregates(
            {
                "latest_ns": "max(intended_ns)",
                "missed_ns": missed,
                "area_ns": "sum(greatest(latency_ns - slo_ns, 0D))",
            }
        )
    )
    recovery = (
        "CASE WHEN missed_ns IS NULL THEN 0D "
        "WHEN missed_ns = latest_ns THEN double('Infinity') "
        "ELSE double(missed_ns - start_ns) END"
    )
    return of_interval.groupBy(*CELL, "session").agg(
        *aggregates(
            {"recovery_ns": f"avg({recovery})", "area_ns": "avg(area_ns)"},
        )
    )


def _intervals(spark: SparkSession, manifest: Manifest) -> DataFrame:
    """Return the intervals of each class that has an objective, in the run's time."""
    rows = [
        {
            "point_index": index,
            "class": entry.name,
            "slo_ns": float(entry.slo_ns),
            "start_ns": round(start_s * 1e9 * (point.stretch or 1.0)),
            "until_ns": round(until_s * 1e9 * (point.stretch or 1.0)),
        }
        for index, point in enumerate(manifest.points)
        for entry in point.classes
        for start_s, until_s in manifest.options.recovery_s
        if entry.slo_ns is not None
    ]
    schema = pa.schema(
        {
            "point_index": pa.int64(),
            "class": pa.string(),
            "slo_ns": pa.float64(),
            "start_ns": pa.int64(),
            "until_ns": pa.int64(),
        }
    )
    table = pa.Table.from_pylist(rows, schema=schema)
    return spark.createDataFrame(table).hint("broadcast")
