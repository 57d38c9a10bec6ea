"""Measurement: all that Spark computes of one experiment, in two passes.

The first pass counts requests by run and latency bucket (``recordings.tally``). The
second reads the wanted buckets again (``recordings.exact_ranks``). Queue samples and
the costs of identical requests are one query each. Every query runs once, over all
points of a sweep, and returns a small table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.comparison import NS_PER_MS, NS_PER_S, QueueMoment
from spark_analysis.judging.metrics import CPU_US, GOODPUT, Metric, headline_of
from spark_analysis.recordings.contract import Manifest, Point, RecordingError
from spark_analysis.recordings.exact_ranks import Quantile, exact_quantiles
from spark_analysis.recordings.latency_histogram import (
    CELL,
    Ccdf,
    GroupKey,
    Histogram,
    by_session,
    ccdf,
    histograms,
)
from spark_analysis.recordings.load import (
    aggregates,
    bin_ns,
    read_requests,
    read_samples,
)
from spark_analysis.recordings.paired_cost import PairedCost, paired_costs
from spark_analysis.recordings.phases import PHASES
from spark_analysis.recordings.tally import Tally, first_pass, tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPhases:
    """Answered requests at or beyond a quantile: their number, and time by phase."""

    requests: int
    phase_sums_ns: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All numbers of one point, before any comparison.

    ``cells`` are by metric, class and arm. ``cpu`` is the mean CPU per request in
    microseconds, where brokers recorded it. ``curves`` and ``slow`` are by class and
    arm.
    """

    tallies: list[Tally] = field(default_factory=list)
    cells: list[CellSessions] = field(default_factory=list)
    cpu: list[CellSessions] = field(default_factory=list)
    curves: dict[tuple[str, str], Ccdf] = field(default_factory=dict)
    slow: dict[tuple[str, str], SlowPhases] = field(default_factory=dict)
    queue: tuple[QueueMoment, ...] = ()
    paired_costs: tuple[PairedCost, ...] = ()


def measure(
    spark: SparkSession, manifest: Manifest, metrics: Sequence[Metric]
) -> dict[int, Measurement]:
    """Return the measurement of every point with requests, by its index.

    :raises spark_analysis.recordings.contract.RecordingError: if a recording does not
    hold.
    """
    requests = read_requests(spark, manifest)
    counted = first_pass(requests, manifest).persist()
    tallies = tally(counted, manifest)
    window = requests.where("inside")
    sessions = sorted({run.session for run in manifest.runs_compared})
    in_window = by_session(counted.where("inside"), sessions)
    found = histograms(in_window.toArrow(), sessions)
    levels = [metric.quantile for metric in metrics if metric.quantile is not None]
    phases = {p.name: f"coalesce({p.name}, 0)" for p in PHASES} | {"n": "1"}
    quantiles = exact_quantiles(spark, window, found, levels, phases)
    headline = metrics.index(headline_of(metrics))
    slow = _slow_phases(
        spark, counted, {k: of[headline] for k, of in quantiles.items()}
    )
    counted.unpersist()
    queue = queue_over_time(read_samples(spark, manifest), manifest)
    costs = paired_costs(window, manifest)
    played = Counter((it.point, it.arm, it.session) for it in manifest.runs_compared)
    measured = {
        index: Measurement(
            queue=queue.get(index, ()), paired_costs=costs.get(index, ())
        )
        for index in sorted({key.point_index for key in found})
    }
    for each in tallies:
        measured[each.point_index].tallies.append(each)
    for key, of in found.items():
        there = measured[key.point_index]
        point = manifest.points[key.point_index]
        runs = [t for t in there.tallies if (t.class_name, t.arm) == key[1:]]
        latency = [metric for metric in metrics if metric.quantile is not None]
        for metric, quantile in zip(latency, quantiles[key], strict=True):
            there.cells.append(_quantile_cell(point, key, metric, of, quantile))
        there.cells.append(_goodput_cell(point, key, runs, played))
        if any(run.costed for run in runs):
            there.cpu.append(_cpu_cell(point, key, runs))
        there.curves[key[1:]] = ccdf(of, manifest.options.confidence)
        if key in slow:
            there.slow[key[1:]] = slow[key]
    return measured


def _quantile_cell(
    point: Point, key: GroupKey, metric: Metric, of: Histogram, found: Quantile
) -> CellSessions:
    return CellSessions(
        point=point.name,
        class_name=key.class_name,
        arm=key.arm,
        metric=metric.name,
        sessions=of.sessions,
        values=tuple((found.own / NS_PER_MS).tolist()),
        pooled=found.pooled / NS_PER_MS,
        without=tuple((found.without / NS_PER_MS).tolist()),
        counts=tuple(of.sizes.tolist()),
        exceedances=tuple(found.exceedances),
    )


def _goodput_cell(
    point: Point,
    key: GroupKey,
    runs: Sequence[Tally],
    played: Mapping[tuple[str, str, int], int],
) -> CellSessions:
    """Return good answers a second, over all runs: also those without a request."""
    start, end = point.window_ns
    seconds = (end - start) / NS_PER_S
    parts = [(run.session, run.good, 0.0) for run in runs]
    for (name, arm, session), count in played.items():
        if (name, arm) == (point.name, key.arm):
            parts.append((session, 0, count * seconds))
    return _mean_cell(point, key, GOODPUT, parts, runs)


def _cpu_cell(point: Point, key: GroupKey, runs: Sequence[Tally]) -> CellSessions:
    parts = [(run.session, run.cpu_ns / 1e3, run.costed) for run in runs]
    return _mean_cell(point, key, CPU_US, parts, runs)


def _mean_cell(
    point: Point,
    key: GroupKey,
    metric: str,
    parts: Iterable[tuple[int, float, float]],
    runs: Sequence[Tally],
) -> CellSessions:
    """Return a metric that is a sum over a sum, of ``parts`` by session."""
    parts = sorted(parts)
    sums = {session: np.zeros(2) for session, _, _ in parts}
    counts = dict.fromkeys(sums, 0)
    for session, above, below in parts:
        sums[session] += (above, below)
    for run in runs:
        counts[run.session] += sum(run.counts.values())
    table = np.array(list(sums.values()))
    whole = table.sum(axis=0)
    return CellSessions(
        point=point.name,
        class_name=key.class_name,
        arm=key.arm,
        metric=metric,
        sessions=tuple(sums),
        values=tuple(_quotient(*row) for row in table.tolist()),
        pooled=_quotient(*whole.tolist()),
        without=tuple(_quotient(*row) for row in (whole - table).tolist()),
        counts=tuple(counts.values()),
    )


def _quotient(above: float, below: float) -> float:
    return above / below if below else math.nan


def _slow_phases(
    spark: SparkSession, counted: DataFrame, tails: Mapping[GroupKey, Quantile]
) -> dict[GroupKey, SlowPhases]:
    """Add up the phases of answered requests at or beyond each quantile."""
    table = {name: [key[i] for key in tails] for i, name in enumerate(CELL)}
    first = pa.array([of.bucket for of in tails.values()], pa.int32())
    limits = spark.createDataFrame(pa.table({**table, "first": first})).hint(
        "broadcast"
    )
    found = (
        counted.where("inside AND outcome = 'ok'")
        .join(limits, list(CELL))
        .where("bucket >= first")
        .groupBy(*CELL)
        .agg(*aggregates({p.name: f"sum({p.name})" for p in PHASES} | {"n": "sum(n)"}))
    )
    sums = {}
    for row in found.toArrow().to_pylist():
        key = GroupKey(*(row[name] for name in CELL))
        below = tails[key].below
        sums[key] = SlowPhases(
            requests=row["n"] - below["n"],
            phase_sums_ns={p.name: row[p.name] - below[p.name] for p in PHASES},
        )
    return sums


def queue_over_time(
    samples: DataFrame, manifest: Manifest
) -> dict[int, tuple[QueueMoment, ...]]:
    """Return the queue over time: planes summed, then median and range over blocks.

    :raises RecordingError: if samples lack what this needs.
    """
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
    if any(value is None for row in rows for value in row.values()):
        raise RecordingError(
            f"{manifest.directory}: samples lack a time, or the length of a queue"
        )
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
