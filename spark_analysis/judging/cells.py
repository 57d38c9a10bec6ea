"""Verdicts: from the sessions of every class and arm to a word and numbers per cell.

A cell is one class under one arm in one metric. It passes four steps:

1. *Tail gate.* A quantile needs ``exceedances_shown`` effective exceedances over all
   sessions, under the arm and under the baseline. Other cells are refused.
2. *Family.* The remaining contrasts of all rivals form families, and Holm's rule
   adjusts the p-values within each. The primary family is the configured class at the
   configured quantile. Each metric's other classes are a secondary family. The A/A arm
   belongs to no family.
3. *Noise floor.* The A/A interval of the same class and metric, made symmetric, because
   the order of the two baselines is arbitrary. A ratio inside it is neither better nor
   worse.
4. *Word.* Equivalent, if two one-sided tests reject; else better or worse, if p is
   below alpha; else not significant.

A deterministic world has no p-values. Its words rest on its prediction interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.contrast import (
    Contrast,
    adjust,
    contrast_of,
    pooled_logs,
    tail_of,
)
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.rules import Rules
from spark_analysis.recordings.contract import Options
from spark_analysis.statistics.intervals import (
    Estimate,
    mean_interval,
    median_interval,
)
from spark_analysis.statistics.multiplicity import holm
from spark_analysis.statistics.paired import smallest_p
from spark_analysis.statistics.ratios import ratio_of

Word = Literal[
    "baseline", "A/A", "better", "worse", "equivalent", "not significant", "refused"
]
WITHIN_NOISE: Final = "within the noise floor"


class CellKey(NamedTuple):
    """A class under an arm in a metric."""

    class_name: str
    arm: str
    metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One class under one arm in one metric, with its verdict.

    ``value`` is the metric over all sessions, and ``contrast`` the comparison with the
    baseline, its p-values adjusted for the family. Both are None in a refused cell.
    ``noise`` is the noise floor, and ``p_min`` the smallest p-value that the sessions
    can give in the family; either may be None. ``why`` is the reason of a refusal, or
    of a word that the numbers do not explain. ``effective`` is the number of effective
    exceedances of a quantile.
    """

    class_name: str
    arm: str
    metric: Metric
    sessions: int
    requests: int
    value: Estimate | None
    contrast: Contrast | None
    noise: Estimate | None
    p_min: float | None
    secondary: bool
    word: Word
    why: str = ""
    effective: float | None = None

    @property
    def verdict(self) -> str:
        """The verdict in ``results.json``: a word, or a refusal with its reason."""
        return f"refused: {self.why}" if self.word == "refused" else self.word

    @property
    def ratio(self) -> Estimate | None:
        """The ratio to the baseline."""
        return None if self.contrast is None else self.contrast.ratio

    @property
    def is_decided(self) -> bool:
        """Whether a difference or an equivalence was found."""
        return self.word in ("better", "worse", "equivalent")


def judge_cells(
    found: Sequence[CellSessions], metrics: Sequence[Metric], rules: Rules
) -> tuple[Cell, ...]:
    """Return the cells of one point, in the order of ``found``."""
    by_name = {metric.name: metric for metric in metrics}
    by_key = {CellKey(it.class_name, it.arm, it.metric): it for it in found}
    refusals, contrasts = {}, {}
    for key, cell in by_key.items():
        base = by_key.get(key._replace(arm=rules.baseline))
        metric = by_name[key.metric]
        if base is None:
            refusals[key] = f"there is no {metric.label} under {rules.baseline}"
            continue
        refusals[key] = why_refused(metric, rules.options, cell, base)
        if key.arm != rules.baseline and not refusals[key]:
            contrasts[key] = contrast_of(cell, base, metric, rules)
    rivals = {key: it for key, it in contrasts.items() if key.arm != rules.again}
    adjusted, p_min = adjust_families(rivals, rules.primary)
    judged = {**contrasts, **adjusted}
    return tuple(
        _cell(
            cell,
            by_name[key.metric],
            rules,
            judged.get(key),
            noise_floor(contrasts.get(key._replace(arm=rules.again or ""))),
            p_min.get(key),
            why=refusals[key],
        )
        for key, cell in by_key.items()
    )


def why_refused(metric: Metric, options: Options, *cells: CellSessions) -> str:
    """Return why an arm and its baseline have no verdict, or an empty string.

    An arm with answers is comparable with an arm without any, for any number of
    requests.
    """
    if metric.quantile is None:
        return _why_no_ratio(metric, *cells)
    answered = [math.isfinite(cell.pooled) for cell in cells]
    if not any(answered):
        share = f"{float(1 - metric.quantile):.2g}"
        return (
            f"more than a share of {share} of the requests has no good answer, "
            f"so there is no {metric.label}"
        )
    if not all(answered):
        return ""
    weights = [tail.effective for cell in cells if (tail := tail_of(cell, metric))]
    if min(weights) < options.exceedances_shown:
        return (
            f"{min(weights):.2g} effective exceedances of {metric.label}; "
            f"{options.exceedances_shown:g} are needed"
        )
    return ""


def _why_no_ratio(metric: Metric, *cells: CellSessions) -> str:
    """Return why a session has no ratio: both values are infinite."""
    values = [dict(zip(it.sessions, it.values, strict=True)) for it in cells]
    common = set.intersection(*map(set, values))
    if not common:
        return f"no session has a {metric.label} under both arms"
    never = sum(all(math.isinf(of[it]) for of in values) for it in common)
    if not never:
        return ""
    return f"{metric.label} is infinite in {never} of {len(common)} sessions"


def adjust_families(
    rivals: Mapping[CellKey, Contrast], primary: tuple[str, str]
) -> tuple[dict[CellKey, Contrast], dict[CellKey, float]]:
    """Return contrasts with p-values adjusted by family, and their smallest p-values.

    A deterministic world's contrasts have no p-values and stay as they are.
    """
    families: dict[str, list[CellKey]] = {}
    for key in rivals:
        is_primary = (key.class_name, key.metric) == primary
        families.setdefault("" if is_primary else key.metric, []).append(key)
    adjusted, p_min = {}, {}
    for keys in families.values():
        for key, contrast in zip(
            keys, adjust([rivals[key] for key in keys], holm), strict=True
        ):
            adjusted[key] = contrast
            if contrast.p is not None:
                p_min[key] = smallest_p(len(contrast.logs), len(keys))
    return adjusted, p_min


def noise_floor(again: Contrast | None) -> Estimate | None:
    """Return the range of ratios of two baselines, made symmetric about 1."""
    if again is None:
        return None
    ends = (again.ratio.low, again.ratio.high)
    widest = max(abs(math.log(end)) if end > 0 else math.inf for end in ends)
    return ratio_of(Estimate(0.0, -widest, widest))


def verdict_of(
    contrast: Contrast, noise: Estimate | None, metric: Metric, alpha: float
) -> tuple[Word, str]:
    """Return the word for a contrast that was not refused, and its reason."""
    ratio = contrast.ratio
    if _is_same(contrast, metric, alpha):
        return "equivalent", ""
    if noise is not None and noise.low <= ratio.value <= noise.high:
        return "not significant", WITHIN_NOISE
    significant = contrast.p is None or contrast.p < alpha
    if not significant or ratio.low <= 1 <= ratio.high:
        return "not significant", ""
    return ("better" if (ratio.high < 1) == metric.lower_is_better else "worse"), ""


def _is_same(contrast: Contrast, metric: Metric, alpha: float) -> bool:
    if contrast.p_same is not None:
        return contrast.p_same < alpha
    margin = 1 + metric.margin
    return 1 / margin <= contrast.ratio.low and contrast.ratio.high <= margin


def _cell(
    cell: CellSessions,
    metric: Metric,
    rules: Rules,
    contrast: Contrast | None,
    noise: Estimate | None,
    p_min: float | None,
    *,
    why: str,
) -> Cell:
    word: Word
    if why:
        word = "refused"
    elif contrast is None:
        word = "baseline"
    elif cell.arm == rules.again:
        word = "A/A"
    else:
        word, why = verdict_of(contrast, noise, metric, rules.options.alpha)
        if word == "not significant" and p_min is not None and not why:
            why = _too_few(len(contrast.logs), p_min, rules.options.alpha)
    tail = tail_of(cell, metric)
    return Cell(
        class_name=cell.class_name,
        arm=cell.arm,
        metric=metric,
        sessions=len(cell.sessions),
        requests=sum(cell.counts),
        value=None
        if word == "refused"
        else value_of(cell, metric, rules.options.confidence),
        contrast=contrast,
        noise=noise,
        p_min=p_min,
        secondary=(cell.class_name, cell.metric) != rules.primary,
        word=word,
        why=why,
        effective=None if tail is None else tail.effective,
    )


def _too_few(sessions: int, p_min: float, alpha: float) -> str:
    if p_min < alpha:
        return ""
    return f"{sessions} sessions give no p below {p_min:.2g}; {alpha:g} is needed"


def value_of(cell: CellSessions, metric: Metric, confidence: float) -> Estimate:
    """Return the metric over all sessions with its interval.

    A quantile is pooled; its interval is the jackknife's on a logarithmic scale.
    Another metric is the mean over sessions with its t interval, or the median if some
    session has an infinite value.
    """
    if metric.quantile is None:
        values = np.array(cell.values)
        interval = mean_interval if np.all(np.isfinite(values)) else median_interval
        value, low, high = interval(values, confidence)
        return Estimate(value, max(0.0, low), min(high, metric.most))
    logs = pooled_logs(cell)
    if not np.all(np.isfinite(logs)):
        return Estimate(cell.pooled, 0.0, math.inf)
    bounds = ratio_of(mean_interval(logs, confidence))
    return Estimate(cell.pooled, bounds.low, bounds.high)
