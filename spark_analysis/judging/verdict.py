"""From a cell's numbers to one word: better, worse, equivalent, inconclusive, refused.

Two questions are kept apart. May a *value* be quoted? Not if requests were lost beyond
the quantile, nor if its tail weighs too little. Do two arms *differ*? That is a paired
test over blocks, which needs no quotable value: an arm that is lower in all blocks is
lower, however thin the tails, and one that loses the requests which the other answers
is worse. Two arms are not compared where both lost them, or where a run has so few
requests beyond the quantile that its own quantile is another one.

A cell is refused if neither question has an answer. An A/A arm whose world is
deterministic is no experiment: it is identical, or the world is broken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from spark_analysis.judging.decision import decide
from spark_analysis.judging.group_functions import Contrast
from spark_analysis.judging.metrics import Metric
from spark_analysis.recordings.contract import Options
from spark_analysis.statistics.exceedance import Tail
from spark_analysis.statistics.intervals import Estimate

# A run's own quantile with fewer requests beyond it is nearly its maximum, which grows
# with the length of a run and is no estimate of the quantile. Where rounds are pooled
# it is the effective exceedances of all rounds that must be as many: with two the
# interval of a ratio covers 0.84 of a nominal 0.95, from three on 0.93 (in simulation).
RUN_EXCEEDANCES_MIN: Final = 5

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
class Verdict:
    """One word, the reason where the word needs one, and whether the tail was thin.

    An ``exploratory`` cell has fewer effective exceedances than a headline asks for;
    ``compared`` is false where the arm was not put to the test.
    """

    word: Word
    why: str = ""
    exploratory: bool = False
    compared: bool = True

    @property
    def text(self) -> str:
        """Return what ``results.json`` says: the reason where nothing was decided."""
        undecided = self.word in ("refused", "inconclusive")
        return f"{self.word}: {self.why}" if self.why and undecided else self.word


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one arm did to one class in one metric, before any comparison.

    ``estimate`` is in the metric's unit, over the requests of all ``runs`` pooled;
    ``lost`` is the share of requests without a good answer; ``tail`` is None for
    goodput. Runs that are ``rounds`` of episodes have no quantiles of their own.
    """

    requests: int
    runs: int
    estimate: Estimate
    lost: float
    tail: Tail | None
    rounds: bool = False


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
    withheld = gate(metric, arm, options)
    thin = _thin(arm, options)
    if contrast is None:
        if withheld:
            return Verdict(word="refused", why=withheld, compared=False)
        return Verdict(word="baseline", exploratory=thin, compared=False)
    thin = thin or _thin(baseline, options)
    if replayed and contrast.blocks_tied == contrast.blocks:
        return Verdict(word="identical", exploratory=thin)
    why = why_not_compared(metric, arm, baseline)
    if why:
        word: Word = "refused" if withheld else "inconclusive"
        return Verdict(word=word, why=why, compared=False)
    word = word_of(contrast, options, lower_is_better=metric.lower_is_better)
    if withheld and word == "inconclusive":
        return Verdict(word="refused", why=withheld)
    of_baseline = gate(metric, baseline, options)
    why = withheld or (of_baseline and f"in the baseline {of_baseline}")
    return Verdict(word=word, why=why, exploratory=thin)


def _thin(measured: Measured, options: Options) -> bool:
    """Whether a quantile that exists has too light a tail for a headline."""
    if measured.tail is None or math.isinf(measured.estimate.value):
        return False
    return measured.tail.effective < options.exceedances_headline


def word_of(contrast: Contrast, options: Options, *, lower_is_better: bool) -> Word:
    """Return the word for a contrast of two arms that may be compared."""
    decision = decide(
        contrast.ratio,
        blocks=contrast.blocks,
        p=contrast.p,
        p_same=contrast.p_same,
        alpha=options.alpha,
    )
    if decision == "same":
        return "equivalent"
    if decision == "undecided":
        return "inconclusive"
    return "better" if (decision == "lower") == lower_is_better else "worse"


def gate(metric: Metric, measured: Measured, options: Options) -> str:
    """Return why an arm's own value may not be quoted, or an empty string."""
    if metric.quantile is None:
        return ""
    if not math.isfinite(measured.estimate.value):
        return (
            f"{measured.lost:.1%} of the requests got no good answer in time, "
            f"so there is no {metric.label}; see goodput"
        )
    assert measured.tail is not None
    if measured.tail.effective < options.exceedances_shown:
        if measured.tail.exceedances < options.exceedances_shown:
            return (
                f"{measured.tail.exceedances} of the requests can lie beyond "
                f"{metric.label}, and {options.exceedances_shown:g} must"
            )
        return (
            f"the {measured.tail.exceedances} requests beyond {metric.label} come in "
            f"clusters and weigh like {measured.tail.effective:.3g} "
            f"(VIF {measured.tail.vif:.3g}); {options.exceedances_shown:g} are needed"
        )
    return ""


def why_not_compared(metric: Metric, *measured: Measured) -> str:
    """Return why arms are not compared by a metric, or an empty string."""
    if metric.quantile is None:
        return ""
    infinite = [math.isinf(of.estimate.value) for of in measured]
    if any(infinite) and not all(infinite):
        # Who answers is ahead of who does not, however few the requests.
        return ""
    if all(infinite):
        lost = min(of.lost for of in measured)
        return (
            f"at least {lost:.1%} of the requests got no good answer in time under "
            f"either arm, so there is no {metric.label}; see goodput"
        )
    if all(of.rounds for of in measured):
        return _thin_over_rounds(metric, measured)
    beyond = min(of.requests / of.runs for of in measured) * float(1 - metric.quantile)
    if beyond < RUN_EXCEEDANCES_MIN:
        return (
            f"a run has {beyond:.2g} of its requests beyond {metric.label} on average, "
            f"too few for a {metric.label} of its own; {RUN_EXCEEDANCES_MIN} are needed"
        )
    return ""


def _thin_over_rounds(metric: Metric, measured: Sequence[Measured]) -> str:
    """Return why arms are not compared by a quantile of pooled rounds, or nothing."""
    effective = min(of.tail.effective for of in measured if of.tail is not None)
    if effective < RUN_EXCEEDANCES_MIN:
        return (
            f"the requests beyond {metric.label} weigh like {effective:.2g} over all "
            f"rounds; {RUN_EXCEEDANCES_MIN} are needed"
        )
    return ""
