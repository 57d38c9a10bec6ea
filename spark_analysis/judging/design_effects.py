"""From the runs of a full two-level design to its effects, per class and metric.

A class is judged in every metric in which all its arms may be compared; where some
arm's quantile is infinite (requests were lost), or a run is too short for it, there is
no effect to be computed, the reason is kept, and the class is told by a metric that has
one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spark_analysis.judging.attribution import Attribution, Design, Effect
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.decision import decide
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.run_values import Key, values_by_block
from spark_analysis.judging.verdict import why_not_compared
from spark_analysis.recordings.contract import Arm, Manifest
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.bootstrap_t import both_p
from spark_analysis.statistics.factorial import (
    Combination,
    Line,
    by_block,
    combinations_of,
    lines,
    part_of_whole,
)
from spark_analysis.statistics.intervals import Estimate, mean_interval
from spark_analysis.statistics.ratios import factor

Responses = Mapping[Combination, FloatArray]


def design_of(manifest: Manifest) -> tuple[Design | None, str]:
    """Return the compared arms as a design, or why they are none.

    Neither where no arm names a factor: then nothing was promised.
    """
    arms = [arm for arm in manifest.arms_compared if arm.factors]
    if not arms:
        return None, ""
    levels: dict[str, tuple[str, str]] = {}
    for name, reference in arms[0].factors.items():
        others = sorted({arm.factors[name] for arm in arms} - {reference})
        if len(others) != 1:
            found = ", ".join([reference, *others])
            return None, f"{name} has the levels {found}, and not two of them"
        levels[name] = (reference, others[0])
    by_combination = {_combination(arm, levels): arm.name for arm in arms}
    missing = [
        one for one in combinations_of(tuple(levels)) if one not in by_combination
    ]
    if missing:
        settings = ", ".join(f"{k} {v[k in missing[0]]}" for k, v in levels.items())
        return None, f"no arm with a valid run has {settings}"
    return Design(levels=levels, arms=by_combination), ""


def _combination(arm: Arm, levels: Mapping[str, tuple[str, str]]) -> Combination:
    return frozenset(
        name for name, two in levels.items() if arm.factors[name] != two[0]
    )


def attribute(comparison: Comparison, design: Design) -> tuple[Attribution, ...]:
    """Return the attribution of every class in every metric, as they are shown."""
    found: dict[tuple[str, str], Attribution] = {}
    for metric in comparison.metrics:
        ready: dict[str, Responses] = {}
        for name in comparison.class_names:
            why = _refusal(comparison, design, name, metric)
            if why:
                found[name, metric.name] = Attribution(
                    class_name=name, metric=metric, why=why
                )
            else:
                ready[name] = _responses(comparison, design, name, metric)
        for name, effects in _judge(comparison, design, ready).items():
            found[name, metric.name] = Attribution(
                class_name=name,
                metric=metric,
                effects=effects,
                reach=_reach(comparison, design, ready[name]),
            )
    return tuple(
        found[name, metric.name]
        for name in comparison.class_names
        for metric in comparison.metrics
    )


def _refusal(
    comparison: Comparison, design: Design, class_name: str, metric: Metric
) -> str:
    """Return why a metric of a class has no effects, or an empty string."""
    for arm in design.arms.values():
        values = _values(comparison, class_name, arm, metric)
        if not all(math.isfinite(value) and value > 0 for value in values.values()):
            what = (
                "goodput is zero" if metric.level is None else "too many got no answer"
            )
            return f"under {arm} {what}, so there is no {metric.label} to divide by"
    cells = [
        comparison.cell(class_name, arm, metric.name) for arm in design.arms.values()
    ]
    return why_not_compared(metric, *(cell.measured for cell in cells))


def _values(
    comparison: Comparison, class_name: str, arm: str, metric: Metric
) -> dict[int, float]:
    return values_by_block(comparison.run_values, Key(class_name, arm), metric.name)


def _responses(
    comparison: Comparison, design: Design, class_name: str, metric: Metric
) -> Responses:
    """Return the log of the metric in each block, by combination."""
    found = {}
    for combination, arm in design.arms.items():
        values = _values(comparison, class_name, arm, metric)
        found[combination] = np.log(list(values.values()))
    return found


@dataclass(frozen=True, slots=True)
class _Measured:
    line: Line
    values: FloatArray


def _judge(
    comparison: Comparison, design: Design, ready: Mapping[str, Responses]
) -> dict[str, tuple[Effect, ...]]:
    """Return every class's effects: p over all of them, intervals over a class's."""
    if not ready:
        return {}
    options = comparison.manifest.options
    drawn = lines(design.factors)
    measured = {
        name: [_Measured(line, by_block(line, responses)) for line in drawn]
        for name, responses in ready.items()
    }
    blocks = len(comparison.manifest.blocks)
    table = np.full((blocks, len(ready) * len(drawn)), math.nan)
    flat = [of for found in measured.values() for of in found]
    for column, of in enumerate(flat):
        table[: len(of.values), column] = of.values
    p = iter(both_p(table, comparison.manifest.seed))
    confidence = 1 - options.alpha / len(drawn)
    return {
        name: tuple(
            _effect(of, found[-1].values, float(next(p)), confidence, options.alpha)
            for of in found
        )
        for name, found in measured.items()
    }


def _effect(
    of: _Measured, whole: FloatArray, p: float, confidence: float, alpha: float
) -> Effect:
    log = mean_interval(of.values, confidence)
    ratio = Estimate(*(factor(end) for end in log))
    part = None
    if of.line.kind != "effect":
        part = part_of_whole(of.values, whole, 1 - alpha)
    return Effect(
        kind=of.line.kind,
        factors=of.line.factors,
        ratio=ratio,
        part=part,
        p=p,
        decision=decide(ratio, blocks=len(of.values), p=p, p_same=1.0, alpha=alpha),
    )


def _reach(
    comparison: Comparison, design: Design, responses: Responses
) -> dict[Combination, Estimate]:
    none, *others = combinations_of(design.factors)
    whole = responses[others[-1]] - responses[none]
    level = comparison.manifest.options.confidence
    return {
        one: part_of_whole(responses[one] - responses[none], whole, level)
        for one in others
    }
