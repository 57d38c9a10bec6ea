"""The study: Spark aggregates, NumPy decides, and this module combines the parts.

Every job runs once, over all points of a sweep. A job per point would pay Spark's
overhead at each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from spark_analysis.judging.capacities import capacity_cells
from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.cells import CellKey, judge_cells
from spark_analysis.judging.comparison import (
    NS_PER_MS,
    Comparison,
    Curve,
    Key,
    PhaseMeans,
    display_order,
)
from spark_analysis.judging.design_effects import designs_of, effects_of
from spark_analysis.judging.levels import level_ratios
from spark_analysis.judging.measurement import Measurement, SlowPhases, measure
from spark_analysis.judging.metrics import Metric, measures_of, metrics_of
from spark_analysis.judging.pairs import Pair, pair_cells
from spark_analysis.judging.rules import rules_of
from spark_analysis.judging.study import Study, factors_of
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.latency_histogram import Ccdf
from spark_analysis.recordings.phases import PHASES
from spark_analysis.recordings.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compare(spark: SparkSession, manifest: Manifest) -> Study:
    """Read, check and compare all arms of one experiment at all its points.

    :raises spark_analysis.recordings.contract.RecordingError: if a recording breaks its
        contract.
    """
    metrics = metrics_of(manifest.options)
    measured = measure(spark, manifest, metrics)
    comparisons = [
        _comparison(manifest.at(manifest.points[index]), metrics, found)
        for index, found in measured.items()
    ]
    capacities = list(capacity_cells(manifest, measured))
    headline = comparisons[0].primary_metric
    return Study(
        manifest=manifest,
        comparisons=tuple(comparisons),
        pairs=pair_cells(comparisons, _pairs(manifest), metrics),
        levels=level_ratios(comparisons, factors_of(manifest), headline),
        headline=headline,
        capacities=judge_cells(
            capacities, measures_of(manifest.options), rules_of(manifest)
        ),
    )


def _comparison(
    manifest: Manifest, metrics: Sequence[Metric], found: Measurement
) -> Comparison:
    present = {Key(it.class_name, it.arm) for it in found.cells}
    ordered = [key for key in display_order(manifest) if key in present]
    rules = rules_of(manifest)
    sessions = _ordered(found.cells, ordered)
    cells = judge_cells(sessions, metrics, rules)
    by_key = {CellKey(it.class_name, it.arm, it.metric): it for it in sessions}
    return Comparison(
        manifest=manifest,
        metrics=tuple(metrics),
        rules=rules,
        sessions=by_key,
        cells=cells,
        measures=judge_cells(
            _ordered(found.measures, ordered), measures_of(manifest.options), rules
        ),
        effects=tuple(effects_of(designs_of(manifest), by_key, cells, rules)),
        curves=tuple(_curve(key, found.curves[key]) for key in ordered),
        phases=tuple(_phases(manifest, found, ordered)),
        queue=found.queue,
        paired_costs=found.paired_costs,
    )


def _phases(
    manifest: Manifest, found: Measurement, ordered: Sequence[Key]
) -> Iterator[PhaseMeans]:
    """Yield the phases of all requests, then those of the slowest requests, if any."""
    if manifest.brokers_recorded:
        slow = found.slow
        yield from (_all_phases(key, found.tallies) for key in ordered)
        yield from (_slow_phases(key, slow[key]) for key in ordered if key in slow)


def _ordered(
    found: Sequence[CellSessions], ordered: Sequence[Key]
) -> tuple[CellSessions, ...]:
    """Return cells in display order, with those of one class and arm in given order."""
    rank = {key: place for place, key in enumerate(ordered)}
    return tuple(sorted(found, key=lambda it: rank[Key(it.class_name, it.arm)]))


def _pairs(manifest: Manifest) -> tuple[Pair, ...]:
    """Return the pairs to compare: the configured ones, and in a sweep all rivals too.

    Arms of a design are left out, because its effects are reported.
    """
    configured = tuple(Pair(*names) for names in manifest.options.pairs)
    if len(manifest.points) == 1:
        return configured
    design = {arm.name for arm in manifest.arms if arm.factors}
    against = [
        Pair(arm, manifest.baseline) for arm in manifest.rivals if arm not in design
    ]
    return (*configured, *(pair for pair in against if pair not in configured))


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


def _curve(key: Key, found: Ccdf) -> Curve:
    return Curve(
        class_name=key.class_name,
        arm=key.arm,
        latency_ms=found.latency_ns / NS_PER_MS,
        share=found.share,
        low=found.low,
        high=found.high,
    )
