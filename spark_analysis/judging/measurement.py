"""Measurement: all numbers that Spark computes of one experiment, in two passes.

The first pass counts requests by run and latency bucket (``recordings.tally``). The
second reads the wanted buckets again (``recordings.exact_ranks``). Queue samples and
the costs of identical requests need one query each. Every query runs once, over all
points of a sweep, and returns a small table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.comparison import NS_PER_MS, NS_PER_S, QueueMoment
from spark_analysis.judging.measures import (
    cells_of_passes,
    cells_of_tallies,
    measure_cell,
)
from spark_analysis.judging.metrics import GOODPUT, Metric, headline_of
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

    ``cells`` and ``measures`` are by metric, class and arm; the former are quantiles
    and goodput. ``curves`` and ``slow`` are by class and arm.
    """

    tallies: list[Tally] = field(default_factory=list)
    cells: list[CellSessions] = field(default_factory=list)
    measures: list[CellSessions] = field(default_factory=list)
    curves: dict[tuple[str, str], Ccdf] = field(default_factory=dict)
    slow: dict[tuple[str, str], SlowPhases] = field(default_factory=dict)
    queue: tuple[QueueMoment, ...] = ()
    paired_costs: tuple[PairedCost, ...] = ()


def measure(
    spark: SparkSession, manifest: Manifest, metrics: Sequence[Metric]
) -> dict[int, Measurement]:
    """Return the measurement of every point with requests, by its index.

    :raises spark_analysis.recordings.contract.RecordingError: if a recording breaks its
        contract.
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
        there.cells.extend(_goodput_cell(point, key, runs, played))
        there.measures.extend(cells_of_tallies(point.name, key, runs))
        there.curves[key[1:]] = ccdf(of, manifest.options.confidence)
        if key in slow:
            there.slow[key[1:]] = slow[key]
    for index, cell in cells_of_passes(spark, requests, manifest, tallies):
        measured[index].measures.append(cell)
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
) -> Iterator[CellSessions]:
    """Yield good answers per second over all runs, also those without a request."""
    start, end = point.window_ns
    good: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for run in runs:
        good[run.session] += run.good
        counts[run.session] += run.sent
    seconds = {
        session: number * (end - start) / NS_PER_S
        for (name, arm, session), number in played.items()
        if (name, arm) == (point.name, key.arm)
    }
    values = {session: good[session] / time_s for session, time_s in seconds.items()}
    yield from measure_cell(point.name, key, GOODPUT, values, counts)


def _slow_phases(
    spark: SparkSession, counted: DataFrame, tails: Mapping[GroupKey, Quantile]
) -> dict[GroupKey, SlowPhases]:
    """Sum the phases of answered requests at or beyond each quantile."""
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

    :raises RecordingError: if samples lack required values.
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
