"""The study: Spark groups, NumPy decides, and the pieces are put together here.

Every job runs once, over all points of a sweep: a loop of jobs over points would pay
Spark's overhead at each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_analysis import grouping
from spark_analysis.attribute import attribute, design_of
from spark_analysis.comparison import (
    NS_PER_MS,
    NS_PER_S,
    Cell,
    Comparison,
    Curve,
    Key,
    PhaseMeans,
    RunValue,
    display_order,
)
from spark_analysis.contract import Manifest
from spark_analysis.levels import level_ratios
from spark_analysis.load import read_requests, read_samples
from spark_analysis.metrics import GOODPUT, Metric, headline_of, metrics_of
from spark_analysis.pairs import Pair, pair_cells
from spark_analysis.phases import PHASES
from spark_analysis.statistics.bootstrap import ratio_interval
from spark_analysis.statistics.exceedance import Tail
from spark_analysis.statistics.intervals import Estimate, mean_interval
from spark_analysis.study import Study, common_headline, factors_of
from spark_analysis.tally import Tally, tally
from spark_analysis.verdict import Contrast, Measured, judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]


def compare(spark: SparkSession, manifest: Manifest) -> Study:
    """Read, check and compare all arms of one experiment at all its points.

    :raises spark_analysis.contract.RecordingError: if a recording does not hold.
    """
    views = [manifest.at(point) for point in manifest.points]
    metrics = metrics_of(manifest.options)
    requests = read_requests(spark, manifest)
    tallies: dict[int, list[Tally]] = {place: [] for place in range(len(views))}
    for counted in tally(requests, manifest):
        tallies[counted.place].append(counted)
    window = requests.where("inside")
    pooled = grouping.distributions(window, manifest)
    run_values = [
        _run_values(tallies[place], pooled.get(place, {}), view, metrics)
        for place, view in enumerate(views)
    ]
    contrasts = grouping.contrasts(spark, run_values, manifest, metrics)
    tail = metrics.index(headline_of(metrics))
    thresholds = {
        place: {key: row["value"][tail] for key, row in of_point.items()}
        for place, of_point in pooled.items()
    }
    slow = grouping.slowest(spark, window, thresholds)
    queue = grouping.queue_over_time(read_samples(spark, manifest), manifest)
    comparisons = []
    for place, view in enumerate(views):
        if place not in pooled:
            continue
        here = {key[1:]: row for key, row in contrasts.items() if key[0] == place}
        ordered = [key for key in display_order(view) if key in pooled[place]]
        late = slow.get(place, {})
        design, why = design_of(view)
        compared = Comparison(
            manifest=view,
            metrics=metrics,
            cells=_cells(view, metrics, run_values[place], pooled[place], here),
            run_values=run_values[place],
            curves=tuple(_curve(pooled[place][key]) for key in ordered),
            phases=(
                *(_all_phases(key, tallies[place]) for key in ordered),
                *(_slow_phases(key, late[key]) for key in ordered if key in late),
            ),
            queue=queue.get(place, ()),
            design=design,
            design_why=why,
            attributions=(),
        )
        if design is not None:
            compared = replace(compared, attributions=attribute(compared, design))
        comparisons.append(compared)
    headline = common_headline(comparisons)
    return Study(
        manifest=manifest,
        comparisons=tuple(comparisons),
        pairs=pair_cells(comparisons, _pairs(manifest), metrics),
        levels=level_ratios(comparisons, factors_of(manifest), headline),
        headline=headline,
    )


def _pairs(manifest: Manifest) -> tuple[Pair, ...]:
    """Return the pairs to compare: those asked for, and in a sweep all rivals too.

    Except the arms of a design, of which the effects tell more.
    """
    asked = manifest.options.pairs
    if len(manifest.points) == 1:
        return asked
    design = {arm.name for arm in manifest.arms if arm.factors}
    against = [(arm, manifest.baseline) for arm in manifest.rivals if arm not in design]
    return (*asked, *(pair for pair in against if pair not in asked))


def _run_values(
    tallies: Sequence[Tally],
    pooled: Mapping[Key, Row],
    manifest: Manifest,
    metrics: Sequence[Metric],
) -> tuple[RunValue, ...]:
    """Join what was counted with the quantiles, run by run, in order of display."""
    start, end = manifest.window_ns
    order = {key: rank for rank, key in enumerate(display_order(manifest))}
    values = []
    for counted in sorted(
        tallies, key=lambda of: (order[of.class_name, of.arm], of.block)
    ):
        row = pooled[counted.class_name, counted.arm]
        run = row["blocks"].index(counted.block)
        of_run = {
            metric.name: row["of_runs"][place][run] / NS_PER_MS
            for place, metric in enumerate(metrics)
            if metric.level is not None
        }
        of_run[GOODPUT] = counted.good / ((end - start) / NS_PER_S)
        values.append(
            RunValue(
                class_name=counted.class_name,
                arm=counted.arm,
                block=counted.block,
                counts=counted.counts,
                values=of_run,
            )
        )
    return tuple(values)


def _all_phases(key: Key, tallies: Sequence[Tally]) -> PhaseMeans:
    runs = [run for run in tallies if (run.class_name, run.arm) == key]
    sums = {p.name: sum(run.phase_sums_ns[p.name] for run in runs) for p in PHASES}
    return _phase_means(key, False, sum(run.counts["ok"] for run in runs), sums)


def _slow_phases(key: Key, row: Row) -> PhaseMeans:
    return _phase_means(key, True, row["requests"], row)


def _phase_means(key: Key, slowest: bool, count: int, sums: Row) -> PhaseMeans:
    return PhaseMeans(
        class_name=key[0],
        arm=key[1],
        slowest=slowest,
        requests=count,
        means_ms={p.name: sums[p.name] / max(count, 1) / NS_PER_MS for p in PHASES},
    )


def _cells(
    manifest: Manifest,
    metrics: Sequence[Metric],
    run_values: Sequence[RunValue],
    pooled: Mapping[Key, Row],
    contrasts: Mapping[tuple[str, str, str], Row],
) -> tuple[Cell, ...]:
    runs: dict[Key, list[RunValue]] = {}
    for run in run_values:
        runs.setdefault((run.class_name, run.arm), []).append(run)
    return tuple(
        _cell(manifest, metric, place, key, runs, pooled, contrasts)
        for key in display_order(manifest)
        if key in pooled
        for place, metric in enumerate(metrics)
    )


def _cell(
    manifest: Manifest,
    metric: Metric,
    place: int,
    key: Key,
    runs: Mapping[Key, Sequence[RunValue]],
    pooled: Mapping[Key, Row],
    contrasts: Mapping[tuple[str, str, str], Row],
) -> Cell:
    base = (key[0], manifest.baseline)
    arm, baseline = (
        _measured(manifest, metric, place, runs[k], pooled[k]) for k in (key, base)
    )
    replayed = manifest.deterministic and manifest.again == key[1]
    row = contrasts.get((*key, metric.name))
    contrast = None
    if row is not None:
        resampled = None
        if metric.level is not None:
            resampled = ratio_interval(
                np.asarray(pooled[key]["resampled"][place]),
                np.asarray(pooled[base]["resampled"][place]),
                manifest.options.confidence,
            )
        contrast = _contrast(row, resampled)
    return Cell(
        class_name=key[0],
        arm=key[1],
        metric=metric,
        measured=arm,
        contrast=contrast,
        blocks=len(runs[key]),
        verdict=judge(
            metric, arm, baseline, contrast, manifest.options, replayed=replayed
        ),
    )


def _measured(
    manifest: Manifest,
    metric: Metric,
    place: int,
    runs: Sequence[RunValue],
    pooled: Row,
) -> Measured:
    answered = sum(run.counts["ok"] for run in runs)
    requests = sum(sum(run.counts.values()) for run in runs)
    assert requests == pooled["requests"], "two counts of the same rows"
    if metric.level is None:
        values = np.array([run.values[metric.name] for run in runs])
        mean = mean_interval(values, manifest.options.confidence)
        estimate = Estimate(mean.value, max(0.0, mean.low), mean.high)
        tail = None
    else:
        estimate = Estimate(
            *(pooled[name][place] / NS_PER_MS for name in Estimate._fields)
        )
        tail = Tail(*(pooled[name][place] for name in Tail._fields))
    return Measured(
        requests=requests, estimate=estimate, lost=1 - answered / requests, tail=tail
    )


def _contrast(row: Row, pooled: Estimate | None) -> Contrast:
    return Contrast(
        ratio=Estimate(row["ratio"], row["low"], row["high"]),
        pooled_ratio=pooled,
        shift=row["shift"],
        blocks_lower=row["lower"],
        blocks_tied=row["ties"],
        blocks=row["blocks"],
        p=row["p"],
        p_same=row["p_same"],
    )


def _curve(row: Row) -> Curve:
    return Curve(
        class_name=row["class"],
        arm=row["arm"],
        latency_ms=np.asarray(row["curve_ns"]) / NS_PER_MS,
        share=np.asarray(row["curve_share"]),
    )
