"""The answer in a few sentences: what becomes of the first class, and who pays for it.

Which arm is best for it and how sure that is, what the other classes pay, and, where
arms have factors, what each factor had in it. With a handful of rivals each is named;
with more, how many gained and the extremes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.ranking import rank
from spark_analysis.telling.sentences.attribution_sentences import split_sentences
from spark_analysis.telling.sentences.numbers import (
    change,
    listed,
    p_value,
    percent,
    quantity,
    ratio,
    ratio_interval,
)
from spark_analysis.telling.sentences.verdict_sentences import (
    finding,
    sentence,
    story,
    subject,
    telling_cell,
)

# More rivals than this are counted instead of named; of those who pay, likewise.
_NAMED: Final = 8
_PAYERS_NAMED: Final = 4


def lead(comparison: Comparison) -> tuple[str, ...]:
    """Return a few sentences on the first class and on the others."""
    first, metric = comparison.class_names[0], comparison.headline
    baseline, rivals = comparison.manifest.baseline, comparison.rivals
    base = comparison.cell(first, baseline, metric.name)
    if not rivals:
        return (sentence(comparison, base),)
    cells = [comparison.cell(first, arm, metric.name) for arm in rivals]
    changes = _named(cells) if len(rivals) <= _NAMED else _counted(cells)
    value = quantity(comparison.typical(first, baseline, metric), metric)
    told = f", {value} {comparison.typical_of} under {baseline},"
    shown = "" if base.withheld else told
    than = f", against {baseline}" if base.withheld else ""
    answer = f"The {subject(base)}{shown} is {changes}{than}."
    return (
        answer,
        *_best(comparison, first, metric),
        *_price(comparison, rivals),
        *split_sentences(comparison, first),
    )


def _best(comparison: Comparison, class_name: str, metric: Metric) -> tuple[str, ...]:
    """Say which arm is best, and which of the others may be so, too."""
    if len(comparison.rivals) < 2:
        return ()
    ranking = rank(comparison, class_name, metric)
    best, rest = ranking.first, ranking.best[1:]
    same = [arm for arm in rest if ranking.same(arm)]
    unknown = [arm for arm in rest if arm not in same]
    if len(ranking.best) == len(ranking.order):
        return ("No arm is shown to be better for it than every other.",)
    sure = _how_sure(comparison, class_name, best, metric)
    words = [f"Best for it is {best}{', by its estimate' if unknown else ''}{sure}"]
    if same:
        within = percent(metric.margin)
        words.append(f"{listed(same)} {_is(same)} the same within {within}")
    if unknown:
        words.append(f"{listed(unknown)} {_is(unknown)} not told apart from it")
    words.append(
        "all others are shown to be worse than some arm, all pairs tested at once"
    )
    return ("; ".join(words) + ".",)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _how_sure(comparison: Comparison, class_name: str, arm: str, metric: Metric) -> str:
    contrast = comparison.cell(class_name, arm, metric.name).shown_contrast
    if contrast is None:
        return ""
    level = percent(comparison.manifest.options.confidence)
    return (
        f" (ratio {ratio(contrast.ratio.value)} to {comparison.manifest.baseline}, "
        f"{level} interval {ratio_interval(contrast.ratio)}, "
        f"p = {p_value(contrast.p)})"
    )


def _named(cells: Sequence[Cell]) -> str:
    return listed([f"{finding(cell)} under {cell.arm}" for cell in cells])


def _counted(cells: Sequence[Cell]) -> str:
    """Count arms by verdict; of those that differ, tell the extremes."""
    parts = []
    for word, of in (("better", "better"), ("worse", "worse")):
        found = [cell for cell in cells if cell.verdict.word == word]
        if found:
            parts.append(
                f"{of} under {len(found)} of {len(cells)} arms {_range(found)}"
            )
    rest = (("equivalent", "the same"), ("inconclusive", "undecided"))
    for word, of in (*rest, ("refused", "not shown")):
        count = sum(cell.verdict.word == word for cell in cells)
        if count:
            parts.append(f"{of} under {count}")
    return listed(parts)


def _range(cells: Sequence[Cell]) -> str:
    ordered = sorted(
        cells, key=lambda cell: cell.contrast.ratio if cell.contrast else ()
    )
    low, high = ordered[0], ordered[-1]
    if len(ordered) == 1:
        return f"({finding(low)} under {low.arm})"
    return f"(from {finding(low)} under {low.arm} to {finding(high)} under {high.arm})"


def _price(comparison: Comparison, rivals: Sequence[str]) -> tuple[str, ...]:
    """Say who pays: the worse cells, and how much is not known of the others."""
    cells = [cell for arm in rivals for cell in story(comparison, arm).others]
    classes = comparison.class_names[1:]
    if not classes:
        return ()
    worse = [cell for cell in cells if cell.verdict.word == "worse"]
    open_ = _open(comparison, rivals)
    if not worse:
        if open_:
            return (f"Whether the other classes pay for it is not decided: {open_}.",)
        return (f"No other class pays for it in latency: {_unharmed(cells)}.",)
    paid = (_payers if len(rivals) <= _PAYERS_NAMED else _payers_counted)(
        worse, len(rivals)
    )
    rest = f"; {open_}" if open_ else ""
    return (f"The price is paid by {paid}{rest}.",)


def _unharmed(cells: Sequence[Cell]) -> str:
    margins = {cell.metric.name: cell.metric.margin for cell in cells}
    same = any(cell.verdict.word == "equivalent" for cell in cells)
    within = f" or the same within {percent(max(margins.values()))}" if same else ""
    return f"each is better{within} under every arm"


def _open(comparison: Comparison, rivals: Sequence[str]) -> str:
    """Say what is not known of the other classes, and how bad it may well be."""
    cells = [
        telling_cell(comparison, name, arm)
        for name in comparison.class_names[1:]
        for arm in rivals
    ]
    undecided = [cell for cell in cells if cell and not cell.decided]
    missing = sum(cell is None for cell in cells)
    parts = []
    if undecided:
        count = f"{len(undecided)} of {len(cells)}"
        parts.append(f"{count} comparisons are undecided{_largest_estimate(undecided)}")
    if missing:
        parts.append(f"{missing} of {len(cells)} cannot be made")
    return " and ".join(parts)


def _largest_estimate(cells: Sequence[Cell]) -> str:
    """Name the largest estimate to a class's harm, and how far its interval goes."""
    harmed = [
        cell
        for cell in cells
        if cell.contrast
        and (cell.contrast.ratio.value > 1) == cell.metric.lower_is_better
        and cell.contrast.ratio.value != 1
    ]
    if not harmed:
        return ""
    most = max(harmed, key=_factor)
    assert most.contrast is not None
    return (
        f" (by the largest estimate, {most.class_name} {most.metric.label} "
        f"{change(most.contrast.ratio.value)} under {most.arm}, interval "
        f"{ratio_interval(most.contrast.ratio)})"
    )


def _payers(worse: Sequence[Cell], _arms: int) -> str:
    paid: dict[tuple[str, str], list[str]] = {}
    for cell in worse:
        words = f"{cell.metric.label} {finding(cell)}"
        paid.setdefault((cell.class_name, cell.arm), []).append(words)
    return listed(
        [f"{key[0]} under {key[1]} ({', '.join(words)})" for key, words in paid.items()]
    )


def _payers_counted(worse: Sequence[Cell], arms: int) -> str:
    by_class: dict[str, list[Cell]] = {}
    for cell in worse:
        by_class.setdefault(cell.class_name, []).append(cell)
    parts = []
    for name, cells in by_class.items():
        count = len({cell.arm for cell in cells})
        # Latency up or goodput down: whichever is the larger factor.
        most = max(cells, key=_factor)
        extreme = f"{most.metric.label} {finding(most)} under {most.arm}"
        parts.append(
            f"{name} under {count} of {arms} arms (by the largest estimate, {extreme})"
        )
    return listed(parts)


def _factor(cell: Cell) -> float:
    assert cell.contrast is not None
    ratio = cell.contrast.ratio.value
    return max(ratio, 1 / ratio) if ratio > 0 else float("inf")
