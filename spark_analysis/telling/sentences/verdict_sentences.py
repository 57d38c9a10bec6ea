"""Verdicts in plain sentences, the same in terminal, tables, report and paper.

A sentence says what was measured, under which arm, against what, how sure that is, and
what would be wrong to conclude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.metrics import GOODPUT
from spark_analysis.statistics.sign_flip import smallest_p
from spark_analysis.telling.sentences.numbers import (
    change,
    counted,
    interval,
    listed,
    p_value,
    percent,
    quantity,
    ratio,
    ratio_interval,
)


def subject(cell: Cell) -> str:
    """Return what a cell is about: "p99 latency of control"."""
    kind = "goodput" if cell.metric.quantile is None else f"{cell.metric.label} latency"
    return f"{kind} of {cell.class_name}"


def sentence(comparison: Comparison, cell: Cell) -> str:
    """Return the verdict on a cell as one sentence."""
    baseline = comparison.manifest.baseline
    metric = cell.metric
    if cell.refused:
        return f"The {subject(cell)} under {cell.arm} is not shown: {cell.verdict.why}."
    value = quantity(cell.measured.estimate.value, metric)
    if cell.contrast is None:
        spread = interval(cell.measured.estimate)
        return f"The {subject(cell)} under {cell.arm} is {value} ({spread})."
    if cell.verdict.word == "identical":
        return (
            f"The {subject(cell)} under {cell.arm} is identical to {baseline}'s in "
            f"every {_unit(comparison)}{_unless_withheld(cell, f', {value}')}, as it "
            f"must be in the {comparison.manifest.world} world."
        )
    if cell.compared is None:
        return (
            f"The {subject(cell)} under {cell.arm} is {value} over all runs, and not "
            f"compared: {cell.verdict.why}."
        )
    grounds = f"{from_to(comparison, cell)}; {_evidence(comparison, cell)}"
    if cell.verdict.word == "equivalent":
        return (
            f"The {subject(cell)} under {cell.arm} equals {baseline}'s within "
            f"{percent(metric.margin)} ({grounds})."
        )
    if cell.verdict.word == "inconclusive":
        return (
            f"Nothing is decided on the {subject(cell)} under {cell.arm}: {grounds}"
            f"{_why_undecided(comparison, cell)}."
        )
    about = treatment(comparison, cell.arm)
    by = f"; what differs is {about}" if about else ""
    mark = " This is exploratory: the tail is thin." if cell.verdict.exploratory else ""
    why = f" No values are quoted: {cell.verdict.why}." if cell.verdict.why else ""
    return (
        f"The {subject(cell)} is {finding(cell)} under {cell.arm}"
        f"{_than_under(cell, baseline)} ({grounds}{by}).{why or mark}"
    )


def _than_under(cell: Cell, baseline: str) -> str:
    """Return what a change is measured from; a quantile that is lost has no degree."""
    finite = cell.contrast is not None and 0 < cell.contrast.ratio.value < math.inf
    return f" than under {baseline}" if finite and differs(cell) else ""


def _unless_withheld(cell: Cell, text: str) -> str:
    return "" if cell.withheld else text


def _evidence(comparison: Comparison, cell: Cell) -> str:
    contrast = cell.contrast
    assert contrast is not None
    level = percent(comparison.manifest.options.confidence)
    words = (
        f"ratio {ratio(contrast.ratio.value)}, {level} interval "
        f"{ratio_interval(contrast.ratio)}, p = {p_value(contrast.p)}"
    )
    unit = _unit(comparison)
    if contrast.blocks_tied == contrast.blocks:
        return f"{words}, equal in every {unit}"
    blocks = counted(contrast.blocks, unit)
    return f"{words}, lower in {contrast.blocks_lower} of {blocks}"


def _unit(comparison: Comparison) -> str:
    """Return what a replication is called."""
    return "block" if comparison.manifest.episodes is None else "round"


def _why_undecided(comparison: Comparison, cell: Cell) -> str:
    contrast, alpha = cell.contrast, comparison.manifest.options.alpha
    assert contrast is not None
    floor = smallest_p(contrast.blocks)
    blocks = counted(contrast.blocks, _unit(comparison))
    if contrast.blocks == 1:
        return f". With {blocks} nothing can be tested"
    if floor > alpha:
        return (
            f". With {blocks} no data could give a p below "
            f"{p_value(floor)}, so this is no evidence of sameness either"
        )
    if contrast.p < alpha:
        return ". Test and interval disagree"
    if not contrast.ratio.low <= 1 <= contrast.ratio.high:
        return (
            ". The interval is of this comparison alone, and leaves out 1; the p is of "
            "all comparisons at once, and shows no difference"
        )
    return (
        f". A difference of more than {percent(cell.metric.margin)} is neither shown "
        "nor ruled out"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What an arm does for the first class, and what comes with it.

    ``benefit`` is told by the headline quantile, or the highest one below it by which
    the arm is compared, None where there is none. ``others`` tell the other classes
    likewise, and every class's goodput where it differs.
    """

    arm: str
    benefit: Cell | None
    others: tuple[Cell, ...]


def story(comparison: Comparison, arm: str) -> Story:
    """Return the cells by which an arm is told."""
    first = comparison.class_names[0]
    others = []
    for name in comparison.class_names:
        goodput = comparison.cell(name, arm, GOODPUT)
        leading = None if name == first else telling_cell(comparison, name, arm)
        others += [leading] if leading is not None else []
        others += [goodput] if differs(goodput) else []
    return Story(
        arm=arm,
        benefit=telling_cell(comparison, first, arm),
        others=tuple(others),
    )


def treatment(comparison: Comparison, arm: str) -> str:
    """Name the factors in which an arm differs from the baseline, if it has any."""
    differs_in = comparison.manifest.differs_in(arm)
    return listed(f"{factor} {level}" for factor, level in differs_in.items())


def headline(comparison: Comparison, of_arm: Story) -> str:
    """Return a story as a sentence or two, with the factors that it is about."""
    about = treatment(comparison, of_arm.arm)
    arm = f"{of_arm.arm} ({about})" if about else of_arm.arm
    cell = of_arm.benefit
    if cell is None:
        first = comparison.class_names[0]
        return f"{arm}: no quantile of {first} can be compared, its tails are thin."
    than = _than_under(cell, comparison.manifest.baseline)
    others = ", ".join(
        f"{other.class_name} {other.metric.label} {finding(other)}"
        for other in of_arm.others
    )
    return (
        f"{arm}: the {subject(cell)} is {finding(cell)}{than} "
        f"({from_to(comparison, cell)})."
        + (f" The others: {others}." if others else "")
    )


def from_to(comparison: Comparison, cell: Cell) -> str:
    """Return the baseline's value and the cell's, whose quotient is the ratio told.

    These are the geometric means over blocks of the runs' own values, as the ratio is,
    and not the values over all runs that stand in tables.
    """
    baseline = comparison.manifest.baseline
    base = comparison.cell(cell.class_name, baseline, cell.metric.name)
    if base.withheld or cell.withheld:
        return "values not shown"
    before, after = (
        quantity(comparison.typical(cell.class_name, arm, cell.metric), cell.metric)
        for arm in (baseline, cell.arm)
    )
    return f"{before} → {after} {comparison.typical_of}"


def finding(cell: Cell) -> str:
    """Return what was found in a few words: a change, sameness, or nothing."""
    if cell.refused:
        return "not shown"
    if cell.contrast is not None and cell.compared is None:
        return "not compared"
    if differs(cell):
        assert cell.contrast is not None
        latency = cell.metric.quantile is not None
        return change(cell.contrast.ratio.value, latency=latency)
    if cell.verdict.word == "equivalent":
        return f"equal within {percent(cell.metric.margin)}"
    return "identical" if cell.verdict.word == "identical" else "undecided"


def differs(cell: Cell) -> bool:
    """Whether a difference from the baseline was found."""
    return cell.verdict.word in ("better", "worse")


def telling_cell(comparison: Comparison, class_name: str, arm: str) -> Cell | None:
    """Return the cell of the highest quantile, up to the headline, that is compared."""
    highest = comparison.headline.quantile
    for metric in reversed(comparison.metrics):
        quantile = metric.quantile
        if quantile is None or (highest is not None and quantile > highest):
            continue
        cell = comparison.cell(class_name, arm, metric.name)
        if cell.shown_contrast is not None:
            return cell
    return None


def again_sentence(comparison: Comparison) -> str:
    """Say what the A/A arm shows: how far apart two identical arms come out."""
    arm, base = comparison.again, comparison.manifest.baseline
    if arm is None:
        return (
            "There is no A/A arm in this experiment, so the false alarms of its own "
            "tests are not measured."
        )
    if comparison.manifest.deterministic:
        return _replayed_sentence(comparison, arm)
    cells = [c for c in comparison.of_arm(arm) if c.shown_contrast]
    ratios = [c.contrast.ratio.value for c in cells if c.contrast]
    wrong = [c for c in cells if differs(c)]
    spread = (
        f"the ratios of its {counted(len(cells), 'shown cell')} lie between "
        f"{ratio(min(ratios))} and {ratio(max(ratios))}"
        if ratios
        else "none of its cells may be shown"
    )
    if wrong:
        names = ", ".join(f"{c.metric.label} of {c.class_name}" for c in wrong)
        return (
            f"{arm} is {base} once more, and yet a difference was found in {names}; "
            f"{spread}. Differences of that size between other arms mean nothing."
        )
    return (
        f"{arm} is {base} once more: no difference was found, as it should be; "
        f"{spread}."
    )


def _replayed_sentence(comparison: Comparison, arm: str) -> str:
    """Say of an A/A arm in a deterministic world whether it is identical."""
    manifest = comparison.manifest
    apart = replays_apart(comparison)
    if apart:
        return (
            f"{arm} is {manifest.baseline} once more in the {manifest.world} world, "
            f"which is meant to be deterministic, and yet it differs in "
            f"{', '.join(apart)}: the world is broken, and nothing here holds."
        )
    return (
        f"{arm} is {manifest.baseline} once more and identical in every class, metric "
        f"and block, by construction: the {manifest.world} world is deterministic. So "
        "it measures no false alarms; they are measured by simulation, in the tests."
    )


def replays_apart(comparison: Comparison) -> list[str]:
    """Return where an A/A arm in a deterministic world is not identical."""
    return [
        f"{cell.metric.label} of {cell.class_name}"
        for cell in comparison.of_arm(comparison.again or "")
        if cell.contrast and cell.contrast.blocks_tied != cell.contrast.blocks
    ]
