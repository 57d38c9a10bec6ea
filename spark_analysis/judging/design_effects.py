"""From the runs of full two-level designs to their effects, per class and metric.

A class is judged in every metric in which all its arms may be compared; where some
arm's quantile is infinite (requests were lost), or a run is too short for it, there is
no effect to be computed, the reason is kept, and the class is told by a metric that has
one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from spark_analysis.judging.attribution import Attribution, Design, Effect
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.decision import decide
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.run_values import Key, values_by_block
from spark_analysis.judging.verdict import why_not_compared
from spark_analysis.recordings.contract import Arm, Manifest
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.difference import difference_p
from spark_analysis.statistics.factorial import (
    Combination,
    Line,
    by_block,
    combinations_of,
    lines,
    part_of_whole,
)
from spark_analysis.statistics.intervals import Estimate, mean_interval
from spark_analysis.statistics.ratios import ratio_of

Responses = Mapping[Combination, FloatArray]


def designs_of(manifest: Manifest) -> tuple[tuple[Design, ...], str]:
    """Return the two-level designs that the compared arms make, and what is missing.

    A factor with several levels beside the reference makes a design with each of them:
    policies of which each is combined with a reader are as many designs of two factors.
    The reference is what the first arm with factors has. Nothing is missing where no
    arm names a factor: then nothing was promised.
    """
    arms = [arm for arm in manifest.arms_compared if arm.factors]
    if not arms:
        return (), ""
    others: list[list[tuple[str, str]]] = []
    for name, reference in arms[0].factors.items():
        found = dict.fromkeys(arm.factors[name] for arm in arms)
        if len(found) == 1:
            return (), f"{name} has no level but {reference}"
        others.append([(reference, level) for level in found if level != reference])
    designs, missing = [], []
    for chosen in product(*others):
        levels = dict(zip(arms[0].factors, chosen, strict=True))
        design, why = _design(arms, levels)
        designs += [design] if design else []
        missing += [why] if why else []
    return tuple(designs), "; ".join(dict.fromkeys(missing))


def _design(
    arms: Sequence[Arm], levels: Mapping[str, tuple[str, str]]
) -> tuple[Design | None, str]:
    """Return the arms with these levels as a design, or which of them is missing."""
    by_combination = {
        frozenset(f for f, two in levels.items() if arm.factors[f] != two[0]): arm.name
        for arm in arms
        if all(arm.factors[factor] in two for factor, two in levels.items())
    }
    for one in combinations_of(tuple(levels)):
        if one not in by_combination:
            settings = ", ".join(f"{k} {v[k in one]}" for k, v in levels.items())
            return None, f"no arm with a valid run has {settings}"
    return Design(levels=levels, arms=by_combination), ""


def attribute(comparison: Comparison) -> tuple[Attribution, ...]:
    """Return the attribution of every class in every metric, design by design."""
    found: dict[_Asked, Attribution] = {}
    asked = [
        _Asked(number, name, metric)
        for number in range(len(comparison.designs))
        for name in comparison.class_names
        for metric in comparison.metrics
    ]
    for metric in comparison.metrics:
        ready: dict[_Asked, Responses] = {}
        for one in asked:
            if one.metric is not metric:
                continue
            design = comparison.designs[one.design]
            why = _refusal(comparison, design, one.class_name, metric)
            if why:
                found[one] = Attribution(
                    design=design, class_name=one.class_name, metric=metric, why=why
                )
            else:
                ready[one] = _responses(comparison, design, one.class_name, metric)
        for one, effects in _judge(comparison, ready).items():
            design = comparison.designs[one.design]
            found[one] = Attribution(
                design=design,
                class_name=one.class_name,
                metric=metric,
                effects=effects,
                reach=_reach(comparison, design, ready[one]),
            )
    return tuple(found[one] for one in asked)


def _refusal(
    comparison: Comparison, design: Design, class_name: str, metric: Metric
) -> str:
    """Return why a metric of a class has no effects, or an empty string."""
    for arm in design.arms.values():
        values = _values(comparison, class_name, arm, metric)
        if not all(math.isfinite(value) and value > 0 for value in values.values()):
            goodput = metric.quantile is None
            what = "goodput is zero" if goodput else "too many got no answer"
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


class _Asked(NamedTuple):
    """What an attribution is of; ``design`` is the number of its design."""

    design: int
    class_name: str
    metric: Metric


@dataclass(frozen=True, slots=True)
class _Measured:
    line: Line
    values: FloatArray


def _judge(
    comparison: Comparison, ready: Mapping[_Asked, Responses]
) -> dict[_Asked, tuple[Effect, ...]]:
    """Return all effects: p over all of them, intervals over a class's."""
    if not ready:
        return {}
    options = comparison.manifest.options
    measured = {
        one: [
            _Measured(line, by_block(line, responses))
            for line in lines(comparison.designs[one.design].factors)
        ]
        for one, responses in ready.items()
    }
    flat = [of for found in measured.values() for of in found]
    classes = [one.class_name for one, found in measured.items() for _ in found]
    rows = {block: row for row, block in enumerate(comparison.manifest.blocks)}
    table = np.full((len(rows), len(flat)), math.nan)
    # A class may have no request in some block: of all classes a row is the same block.
    here = [
        _rows(comparison, one, rows) for one, found in measured.items() for _ in found
    ]
    for column, (of, places) in enumerate(zip(flat, here, strict=True)):
        table[places, column] = of.values
    p = iter(difference_p(table, classes, comparison.manifest.seed))
    a_class = sum(len(lines(design.factors)) for design in comparison.designs)
    confidence = 1 - options.alpha / a_class
    return {
        one: tuple(
            _effect(of, found[-1].values, float(next(p)), confidence, options.alpha)
            for of in found
        )
        for one, found in measured.items()
    }


def _rows(comparison: Comparison, one: _Asked, rows: Mapping[int, int]) -> list[int]:
    """Return the rows of the blocks in which a class is known; all arms have those."""
    arm = comparison.designs[one.design].none
    return [
        rows[block] for block in _values(comparison, one.class_name, arm, one.metric)
    ]


def _effect(
    of: _Measured, whole: FloatArray, p: float, confidence: float, alpha: float
) -> Effect:
    ratio = ratio_of(mean_interval(of.values, confidence))
    part = None
    if of.line.kind != "effect":
        part = part_of_whole(of.values, whole, confidence)
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
    asked = sum(2 ** len(each.factors) - 1 for each in comparison.designs)
    confidence = 1 - comparison.manifest.options.alpha / asked
    return {
        one: part_of_whole(responses[one] - responses[none], whole, confidence)
        for one in others
    }
