"""Comparisons and studies built from values, without recordings or Spark.

A class under an arm is a list of the p99 in milliseconds, one value per session.
Goodput is always 100 per second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.cells import CellKey, judge_cells
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.design_effects import designs_of, effects_of
from spark_analysis.judging.levels import level_ratios
from spark_analysis.judging.metrics import Metric, metrics_of
from spark_analysis.judging.pairs import Pair, pair_cells
from spark_analysis.judging.rules import rules_of
from spark_analysis.judging.study import Study, factors_of
from spark_analysis.recordings.contract import (
    Arm,
    Manifest,
    Options,
    Point,
    RequestClass,
    Run,
    Sessions,
)

OPTIONS = Options(
    quantiles=(Fraction(99, 100),),
    alpha=0.05,
    margin_latency=0.05,
    margin_goodput=0.02,
    exceedances_shown=30,
)
P99, PER_S = metrics_of(OPTIONS)
REQUESTS = 10_000

# Values by (class, arm), one per block.
Values = Mapping[tuple[str, str], Sequence[float]]
CUBE = ("", "r", "q", "w", "rq", "rw", "qw", "rqw")
FACTORS = {"r": "reader", "q": "queue", "w": "worker"}


def cube_arms() -> dict[str, dict[str, str]]:
    """Return the eight arms of a 2 x 2 x 2 design, with their factors."""
    return {
        name or "none": {
            factor: "own" if letter in name else "shared"
            for letter, factor in FACTORS.items()
        }
        for name in CUBE
    }


def manifest_of(
    arms: Mapping[str, Mapping[str, str]],
    classes: Sequence[str],
    blocks: int,
    point: tuple[str, Mapping[str, str]] = ("", {}),
    world: str = "model",
) -> Manifest:
    """Describe an experiment without failures; the first arm is the baseline."""
    names = list(arms)
    return Manifest(
        directory=Path("nowhere"),
        name="made",
        title="Made of values",
        world=world,
        seed=1,
        created="2026-01-01T00:00:00Z",
        finished=True,
        blocks_planned=blocks,
        baseline=names[0],
        arms=tuple(
            Arm(
                name=name,
                scheduler="fifo",
                settings={},
                again_of=names[0] if name.endswith("-again") else None,
                factors=factors,
            )
            for name, factors in arms.items()
        ),
        points=(
            Point(
                name=point[0],
                levels=point[1],
                classes=tuple(
                    RequestClass(name=name, apis=(), slo_ns=None, offered_per_s=100.0)
                    for name in classes
                ),
                window_ns=(0, 10**9),
            ),
        ),
        options=OPTIONS,
        runs=tuple(
            _run(point[0], arm, block) for block in range(blocks) for arm in names
        ),
        code={},
        environment={},
        config={},
        config_sha256="0" * 64,
        sessions=Sessions(
            planned=blocks,
            rounds=1,
            primary=classes[0],
            quantile=OPTIONS.quantiles[0],
        ),
    )


def _run(point: str, arm: str, block: int) -> Run:
    return Run(
        run_id=f"{point}-b{block:03d}-{arm}-t0",
        point=point,
        block=block,
        session=block,
        arm=arm,
        order=0,
        attempt=0,
        valid=True,
        reason="",
        requests="",
        samples="",
        trace_sha256="",
        counts={"sent": 100, "ok": 100, "error": 0, "timeout": 0, "unfinished": 0},
        lateness_p99_ns=None,
        load_average=None,
        violations={},
        billed_share=None,
    )


def comparison_of(
    manifest: Manifest, values: Values, thin: Sequence[tuple[str, str]] = ()
) -> Comparison:
    """Compare; the tail of each (class, arm) in ``thin`` is in a single session."""
    metrics = (P99, PER_S)
    found = [
        _sessions(
            manifest, metric, key, of if metric is P99 else [100.0] * len(of), thin
        )
        for key, of in values.items()
        for metric in metrics
    ]
    rules = rules_of(manifest)
    sessions = {CellKey(it.class_name, it.arm, it.metric): it for it in found}
    cells = judge_cells(found, metrics, rules)
    return Comparison(
        manifest=manifest,
        metrics=metrics,
        rules=rules,
        sessions=sessions,
        cells=cells,
        effects=tuple(effects_of(designs_of(manifest), sessions, cells, rules)),
    )


def _sessions(
    manifest: Manifest,
    metric: Metric,
    key: tuple[str, str],
    values: Sequence[float],
    thin: Sequence[tuple[str, str]],
) -> CellSessions:
    count = len(values)
    if metric is PER_S:
        values = [100.0] * count
    even = [REQUESTS // 100] * count
    lone = [REQUESTS // 100] + [0] * (count - 1)
    middle = float(np.median(values))
    return CellSessions(
        point=manifest.point.name,
        class_name=key[0],
        arm=key[1],
        metric=metric.name,
        sessions=tuple(range(count)),
        values=tuple(values),
        pooled=middle,
        without=(middle,) * count,
        counts=(REQUESTS,) * count,
        exceedances=()
        if metric.quantile is None
        else tuple(lone if key in thin else even),
    )


def study_of(comparisons: Sequence[Comparison], pairs: Sequence[Pair] = ()) -> Study:
    """Combine the points of a sweep into a study."""
    first = comparisons[0].manifest
    manifest = replace(
        first,
        points=tuple(c.manifest.point for c in comparisons),
        runs=tuple(run for c in comparisons for run in c.manifest.runs),
    )
    return Study(
        manifest=manifest,
        comparisons=tuple(comparisons),
        pairs=pair_cells(comparisons, pairs, (P99, PER_S)),
        levels=level_ratios(comparisons, factors_of(manifest), P99),
        headline=P99,
    )
