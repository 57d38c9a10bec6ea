"""The study: Spark groups, NumPy decides, and the pieces are put together here.

Every job runs once, over all points of a sweep: a loop of jobs over points would pay
Spark's overhead at each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_analysis.judging import spark_jobs
from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.comparison import (
    NS_PER_MS,
    NS_PER_S,
    Cell,
    Comparison,
    Curve,
    PhaseMeans,
    display_order,
)
from spark_analysis.judging.design_effects import attribute, designs_of
from spark_analysis.judging.group_functions import Contrast, Distribution
from spark_analysis.judging.levels import level_ratios
from spark_analysis.judging.measurement import Measurement, SlowPhases, measure
from spark_analysis.judging.metrics import GOODPUT, Metric, metrics_of
from spark_analysis.judging.pairs import Pair, pair_cells
from spark_analysis.judging.run_values import Key, RunValue
from spark_analysis.judging.study import Study, common_headline, factors_of
from spark_analysis.judging.verdict import Measured, gate, judge
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.latency_histogram import Ccdf
from spark_analysis.recordings.load import read_requests
from spark_analysis.recordings.phases import PHASES
from spark_analysis.recordings.tally import Tally
from spark_analysis.statistics.bootstrap import ratio_interval
from spark_analysis.statistics.intervals import Estimate, mean_interval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compare(spark: SparkSession, manifest: Manifest) -> Study:
    """Read, check and compare all arms of one experiment at all its points.

    :raises spark_analysis.recordings.contract.RecordingError: if a recording does not
    hold.
    """
    metrics = metrics_of(manifest.options)
    measured = measure(spark, manifest, metrics)
    window = read_requests(spark, manifest).where("inside")
    found = spark_jobs.distributions(window, manifest)
    views = [manifest.at(point) for point in manifest.points]
    run_values = [
        _run_values(measured[index].tallies, found[index], view, metrics)
        if index in measured
        else ()
        for index, view in enumerate(views)
    ]
    families = spark_jobs.families(spark, run_values, manifest, metrics)
    comparisons = [
        _comparison(
            _Found(
                manifest=views[index],
                metrics=metrics,
                measured=measured[index],
                distributions=found[index],
                run_values=run_values[index],
                families={
                    metric.name: families.get((index, metric.name), {})
                    for metric in metrics
                },
            )
        )
        for index in sorted(found)
    ]
    headline = common_headline(comparisons)
    return Study(
        manifest=manifest,
        comparisons=tuple(comparisons),
        pairs=pair_cells(comparisons, _pairs(manifest), metrics),
        levels=level_ratios(comparisons, factors_of(manifest), headline),
        headline=headline,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What Spark found at one point; families are by metric."""

    manifest: Manifest
    metrics: Sequence[Metric]
    measured: Measurement
    distributions: Mapping[Key, Distribution]
    run_values: tuple[RunValue, ...]
    families: Mapping[str, Mapping[Key, Contrast]]


def _comparison(found: _Found) -> Comparison:
    ordered = [
        key for key in display_order(found.manifest) if key in found.distributions
    ]
    designs, why = designs_of(found.manifest)
    compared = Comparison(
        manifest=found.manifest,
        metrics=tuple(found.metrics),
        cells=tuple(
            _cell(found, key, metric, None if metric.quantile is None else index)
            for key in ordered
            for index, metric in enumerate(found.metrics)
        ),
        run_values=found.run_values,
        curves=tuple(_curve(key, found.measured.curves[key]) for key in ordered),
        phases=tuple(_phases(found, ordered)),
        queue=found.measured.queue,
        paired_costs=found.measured.paired_costs,
        cell_sessions=_ordered(found.measured.cells, ordered),
        cpu_sessions=_ordered(found.measured.cpu, ordered),
        designs=designs,
        design_why=why,
        attributions=(),
    )
    return replace(compared, attributions=attribute(compared))


def _phases(found: _Found, ordered: Sequence[Key]) -> Iterator[PhaseMeans]:
    """Yield the phases of all requests, then those of the slowest, if there are any."""
    if found.manifest.brokers_recorded:
        slow = found.measured.slow
        yield from (_all_phases(key, found.measured.tallies) for key in ordered)
        yield from (_slow_phases(key, slow[key]) for key in ordered if key in slow)


def _ordered(
    found: Sequence[CellSessions], ordered: Sequence[Key]
) -> tuple[CellSessions, ...]:
    """Return cells in the order of display, those of one class and arm as they are."""
    rank = {key: place for place, key in enumerate(ordered)}
    return tuple(sorted(found, key=lambda it: rank[Key(it.class_name, it.arm)]))


def _pairs(manifest: Manifest) -> tuple[Pair, ...]:
    """Return the pairs to compare: those asked for, and in a sweep all rivals too.

    Except the arms of a design, of which the effects tell more.
    """
    asked = tuple(Pair(*names) for names in manifest.options.pairs)
    if len(manifest.points) == 1:
        return asked
    design = {arm.name for arm in manifest.arms if arm.factors}
    against = [
        Pair(arm, manifest.baseline) for arm in manifest.rivals if arm not in design
    ]
    return (*asked, *(pair for pair in against if pair not in asked))


def _run_values(
    tallies: Sequence[Tally],
    distributions: Mapping[Key, Distribution],
    manifest: Manifest,
    metrics: Sequence[Metric],
) -> tuple[RunValue, ...]:
    """Join what was counted with the quantiles, run by run, in order of display."""
    start, end = manifest.window_ns
    order = {key: rank for rank, key in enumerate(display_order(manifest))}
    values = []
    for counted in sorted(
        tallies, key=lambda of: (order[Key(of.class_name, of.arm)], of.block)
    ):
        found = distributions[Key(counted.class_name, counted.arm)]
        run = found.blocks.index(counted.block)
        of_run = {
            metric.name: found.of_runs[index][run] / NS_PER_MS
            for index, metric in enumerate(metrics)
            if metric.quantile is not None and not math.isnan(found.of_runs[index][run])
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


def _slow_phases(key: Key, found: SlowPhases) -> PhaseMeans:
    return _phase_means(key, True, found.requests, found.phase_sums_ns)


def _phase_means(
    key: Key, slowest: bool, count: int, sums_ns: Mapping[str, int]
) -> PhaseMeans:
    return PhaseMeans(
        class_name=key.class_name,
        arm=key.arm,
        slowest=slowest,
        requests=count,
        means_ms={p.name: sums_ns[p.name] / max(count, 1) / NS_PER_MS for p in PHASES},
    )


def _cell(found: _Found, key: Key, metric: Metric, index: int | None) -> Cell:
    """Return one cell; ``index`` is that of the metric's quantile."""
    manifest = found.manifest
    base = Key(key.class_name, manifest.baseline)
    measured = _measured(found, key, metric, index)
    contrast = found.families[metric.name].get(key)
    pooled_ratio = None
    if contrast is not None and index is not None:
        pooled_ratio = ratio_interval(
            np.asarray(found.distributions[key].resampled[index]),
            np.asarray(found.distributions[base].resampled[index]),
            manifest.options.confidence,
        )
    return Cell(
        class_name=key.class_name,
        arm=key.arm,
        metric=metric,
        distribution=found.distributions[key],
        quantile_index=index,
        measured=measured,
        withheld=gate(metric, measured, manifest.options),
        contrast=contrast,
        pooled_ratio=pooled_ratio,
        verdict=judge(
            metric,
            measured,
            _measured(found, base, metric, index),
            contrast,
            manifest.options,
            replayed=manifest.deterministic and manifest.again == key.arm,
        ),
    )


def _measured(found: _Found, key: Key, metric: Metric, index: int | None) -> Measured:
    runs = [run for run in found.run_values if (run.class_name, run.arm) == key]
    distribution = found.distributions[key]
    answered = sum(run.counts["ok"] for run in runs)
    requests = sum(sum(run.counts.values()) for run in runs)
    assert requests == distribution.requests, "two counts of the same rows"
    if index is None:
        values = np.array([run.values[metric.name] for run in runs])
        mean = mean_interval(values, found.manifest.options.confidence)
        estimate = Estimate(mean.value, max(0.0, mean.low), mean.high)
        tail = None
    else:
        estimate = Estimate(*(ns / NS_PER_MS for ns in distribution.estimate(index)))
        tail = distribution.tail(index)
    return Measured(
        requests=requests,
        runs=len(runs),
        estimate=estimate,
        lost=1 - answered / requests,
        tail=tail,
        rounds=found.manifest.episodes is not None,
    )


def _curve(key: Key, found: Ccdf) -> Curve:
    return Curve(
        class_name=key.class_name,
        arm=key.arm,
        latency_ms=found.latency_ns / NS_PER_MS,
        share=found.share,
        low=found.low,
        high=found.high,
    )
