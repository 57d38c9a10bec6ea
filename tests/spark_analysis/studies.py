"""Comparisons and studies made of run values alone: no recordings, no Spark.

A class under an arm is a list with one value per block, of the p99 in milliseconds;
goodput is 100 a second everywhere. Contrasts are computed as the Spark groups do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_analysis.judging.comparison import NS_PER_MS, Cell, Comparison
from spark_analysis.judging.design_effects import attribute, designs_of
from spark_analysis.judging.group_functions import (
    Contrast,
    Distribution,
    describe_distribution,
    judge_family,
)
from spark_analysis.judging.levels import level_ratios
from spark_analysis.judging.metrics import GOODPUT, Metric, metrics_of
from spark_analysis.judging.pairs import Pair, pair_cells
from spark_analysis.judging.run_values import Key, RunValue, logs_by_block
from spark_analysis.judging.study import Study, common_headline, factors_of
from spark_analysis.judging.verdict import Measured, gate, judge
from spark_analysis.recordings.contract import (
    Arm,
    Manifest,
    Options,
    Point,
    RequestClass,
    Run,
    Sessions,
)
from spark_analysis.statistics.exceedance import Tail
from spark_analysis.statistics.intervals import Estimate

OPTIONS = Options(
    quantiles=(Fraction(99, 100),),
    alpha=0.05,
    margin_latency=0.05,
    margin_goodput=0.02,
    exceedances_shown=30,
    exceedances_headline=100,
    resamples=100,
)
P99, PER_S = metrics_of(OPTIONS)
HEAVY = Tail(200, 1.0, 200.0)
THIN = Tail(200, 50.0, 4.0)

# Values by (class, arm), one per block.
Values = Mapping[tuple[str, str], Sequence[float]]
CUBE = ("", "r", "q", "w", "rq", "rw", "qw", "rqw")
FACTORS = {"r": "reader", "q": "queue", "w": "worker"}


def cube_arms() -> dict[str, dict[str, str]]:
    """Name the eight arms of a 2 x 2 x 2 design, with their factors."""
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
    """Describe an experiment in which everything went well; the first arm is base."""
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
    manifest: Manifest,
    values: Values,
    thin: Sequence[tuple[str, str]] = (),
    short: Sequence[tuple[str, str]] = (),
) -> Comparison:
    """Compare; the tails of the (class, arm) in ``thin`` may not be quoted.

    The runs of those in ``short`` have one request beyond their p99.
    """
    metrics = (P99, PER_S)
    runs = tuple(
        RunValue(
            class_name=name,
            arm=arm,
            block=block,
            counts={"ok": 100},
            values={P99.name: value, GOODPUT: 100.0},
        )
        for (name, arm), of_blocks in values.items()
        for block, value in enumerate(of_blocks)
    )
    contrasts = {
        (key, metric.name): contrast
        for metric in metrics
        for key, contrast in _family(manifest, metric, runs).items()
    }
    cells = tuple(
        _cell(
            manifest,
            metric,
            key,
            runs,
            contrasts.get((key, metric.name)),
            (thin, short),
        )
        for key in values
        for metric in metrics
    )
    designs, why = designs_of(manifest)
    made = Comparison(
        manifest=manifest,
        metrics=metrics,
        cells=cells,
        run_values=runs,
        curves=(),
        phases=(),
        queue=(),
        paired_costs=(),
        designs=designs,
        design_why=why,
        attributions=(),
    )
    return replace(made, attributions=attribute(made))


def study_of(comparisons: Sequence[Comparison], pairs: Sequence[Pair] = ()) -> Study:
    """Put the points of a sweep together."""
    first = comparisons[0].manifest
    manifest = replace(
        first,
        points=tuple(c.manifest.point for c in comparisons),
        runs=tuple(run for c in comparisons for run in c.manifest.runs),
    )
    headline = common_headline(comparisons)
    return Study(
        manifest=manifest,
        comparisons=tuple(comparisons),
        pairs=pair_cells(comparisons, pairs, (P99, PER_S)),
        levels=level_ratios(comparisons, factors_of(manifest), headline),
        headline=headline,
    )


def _cell(
    manifest: Manifest,
    metric: Metric,
    key: tuple[str, str],
    runs: Sequence[RunValue],
    contrast: Contrast | None,
    weak: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]],
) -> Cell:
    base = (key[0], manifest.baseline)
    own = [r for r in runs if (r.class_name, r.arm) == key]
    measured = _measured(metric, own, key in weak[0], key in weak[1])
    others = [r for r in runs if (r.class_name, r.arm) == base]
    replayed = manifest.deterministic and manifest.again == key[1]
    return Cell(
        class_name=key[0],
        arm=key[1],
        metric=metric,
        distribution=_distribution(
            key, tuple((run.block, run.values[P99.name]) for run in own)
        ),
        quantile_index=None if metric.quantile is None else 0,
        measured=measured,
        withheld=gate(metric, measured, OPTIONS),
        contrast=contrast,
        pooled_ratio=None,
        verdict=judge(
            metric,
            measured,
            _measured(metric, others, base in weak[0], base in weak[1]),
            contrast,
            OPTIONS,
            replayed=replayed,
        ),
    )


@cache
def _distribution(
    key: tuple[str, str], of_blocks: tuple[tuple[int, float], ...]
) -> Distribution:
    """Describe one request in each block, as Spark's groups do."""
    blocks, values = zip(*of_blocks, strict=True)
    table = pa.table(
        {
            "point_index": [0] * len(blocks),
            "class": [key[0]] * len(blocks),
            "arm": [key[1]] * len(blocks),
            "block": blocks,
            "intended_ns": blocks,
            "latency_ns": np.array(values) * NS_PER_MS,
        }
    )
    described = describe_distribution(
        table, quantiles=OPTIONS.quantiles, confidence=0.95, resamples=1, seed=1
    )
    return Distribution(**described.to_pylist()[0])


def _measured(
    metric: Metric, runs: Sequence[RunValue], thin: bool, short: bool
) -> Measured:
    values = [run.values[metric.name] for run in runs]
    middle = sorted(values)[len(values) // 2]
    return Measured(
        requests=100 * len(runs) if short else 20_000,
        runs=len(runs),
        estimate=Estimate(middle, min(values), max(values)),
        lost=0.02 if math.isinf(middle) else 0.0,
        tail=None if metric.quantile is None else (THIN if thin else HEAVY),
    )


def _family(
    manifest: Manifest, metric: Metric, runs: Sequence[RunValue]
) -> dict[tuple[str, str], Contrast]:
    """Judge all contrasts of a metric as one family, as Spark's groups do."""
    keys = dict.fromkeys(Key(run.class_name, run.arm) for run in runs)
    rows = [
        {
            "point_index": 0,
            "metric": metric.name,
            "class": key.class_name,
            "arm": key.arm,
            "block": block,
            "log_ratio": log,
        }
        for key in keys
        if key.arm != manifest.baseline
        for block, log in logs_by_block(
            runs, key, manifest.baseline, metric.name
        ).items()
    ]
    if not rows:
        return {}
    members = judge_family(
        pa.Table.from_pylist(rows),
        margins={metric.name: metric.margin},
        confidence=OPTIONS.confidence,
        seed=1,
    ).to_pylist()
    return {(row["class_name"], row["arm"]): Contrast(**row) for row in members}
