"""From numbers to one word: better, worse, equivalent, inconclusive, or refused.

The order of the questions matters. A cell whose tail is too thin is refused before
anybody looks at its p-value. Sameness within the margin is asked before difference: a
difference that is real but smaller than what was declared to matter is no news. What is
left without an answer is inconclusive, which is not the same as equal; with so few
blocks that no data could have given a small p, that is said. An A/A arm whose world is
deterministic is no experiment: it is identical, or the world is broken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from spark_analysis.contract import Options
from spark_analysis.metrics import Metric
from spark_analysis.statistics.exceedance import Tail
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.sign_flip import smallest_p

Word = Literal[
    "baseline",
    "better",
    "worse",
    "equivalent",
    "identical",
    "inconclusive",
    "refused",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """An arm against the baseline over paired blocks, for one class and metric.

    ``ratio`` is the geometric mean of the blocks' ratios, ``shift`` their robust
    (Hodges-Lehmann) middle, ``pooled_ratio`` that of pooled quantiles by bootstrap;
    ``p`` is adjusted for the whole family, ``p_same`` belongs to the margin.
    """

    ratio: Estimate
    pooled_ratio: Estimate | None
    shift: float
    blocks_lower: int
    blocks_tied: int
    blocks: int
    p: float
    p_same: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One word, the reason where the word needs one, and whether the tail was thin.

    An ``exploratory`` cell has fewer effective exceedances than a headline asks for.
    """

    word: Word
    why: str = ""
    exploratory: bool = False

    @property
    def text(self) -> str:
        """Return what ``results.json`` says."""
        return f"{self.word}: {self.why}" if self.why else self.word


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one arm did to one class in one metric, before any comparison.

    ``estimate`` is in the metric's unit; ``lost`` is the share of requests without a
    good answer; ``tail`` is None for goodput.
    """

    requests: int
    estimate: Estimate
    lost: float
    tail: Tail | None


def judge(
    metric: Metric,
    arm: Measured,
    baseline: Measured,
    contrast: Contrast | None,
    options: Options,
    *,
    replayed: bool = False,
) -> Verdict:
    """Return the verdict on an arm; ``contrast`` is None for the baseline itself.

    ``replayed`` is an A/A arm in a deterministic world, which can only be identical.
    """
    why = gate(metric, arm, options)
    if why:
        return Verdict(word="refused", why=why)
    thin = arm.tail is not None and arm.tail.effective < options.exceedances_headline
    if contrast is None:
        return Verdict(word="baseline", exploratory=thin)
    why = _baseline_gate(metric, baseline, options)
    if why:
        return Verdict(word="refused", why=why)
    if baseline.tail is not None and math.isfinite(baseline.estimate.value):
        thin = thin or baseline.tail.effective < options.exceedances_headline
    if replayed and contrast.blocks_tied == contrast.blocks:
        return Verdict(word="identical", exploratory=thin)
    return Verdict(word=compare(metric, contrast, options), exploratory=thin)


def compare(metric: Metric, contrast: Contrast, options: Options) -> Word:
    """Return the word for a contrast whose cells both passed the gate."""
    if smallest_p(contrast.blocks) > options.alpha:
        return "inconclusive"
    if contrast.p_same < options.alpha:
        return "equivalent"
    lower = contrast.ratio.high < 1
    higher = contrast.ratio.low > 1
    if contrast.p >= options.alpha or not (lower or higher):
        return "inconclusive"
    return "better" if lower == metric.lower_is_better else "worse"


def gate(metric: Metric, cell: Measured, options: Options) -> str:
    """Return why one arm's number must not be shown, or an empty string."""
    if metric.level is None:
        return ""
    if not math.isfinite(cell.estimate.value):
        return (
            f"{cell.lost:.1%} of the requests got no good answer in time, "
            f"so there is no {metric.label}; see goodput"
        )
    assert cell.tail is not None
    if cell.tail.effective < options.exceedances_shown:
        return (
            f"the {cell.tail.exceedances} requests beyond {metric.label} come in "
            f"clusters and weigh like {cell.tail.effective:.3g} "
            f"(VIF {cell.tail.vif:.3g}); {options.exceedances_shown:g} are needed"
        )
    return ""


def _baseline_gate(metric: Metric, baseline: Measured, options: Options) -> str:
    """Refuse for the baseline's sake, except if its quantile is known: infinite."""
    if math.isinf(baseline.estimate.value):
        return ""
    why = gate(metric, baseline, options)
    return f"in the baseline {why}" if why else ""
