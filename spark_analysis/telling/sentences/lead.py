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
from spark_analysis.judging.ranking import Ranking, picked_ratio, rank
from spark_analysis.telling.sentences.attribution_sentences import split_sentences
from spark_analysis.telling.sentences.numbers import (
    agreeing,
    change,
    counted,
    for_all,
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
NO_BEST: Final = "No arm is shown to be better for it than every other."


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
    if len(ranking.best) == len(ranking.order):
        return (NO_BEST,)
    sure = how_sure(comparison, comparison.cell(class_name, ranking.first, metric.name))
    words = f"Best for it is {ranking.first}{by_estimate(ranking)}"
    return (f"{words}{f' ({sure})' if sure else ''}; {the_others(ranking, metric)}.",)


def by_estimate(ranking: Ranking) -> str:
    """Say that the best arm is only estimated to be so, where others may be it."""
    open_ = any(not ranking.same(arm) for arm in ranking.best[1:])
    return ", by its estimate" if open_ else ""


def the_others(ranking: Ranking, metric: Metric) -> str:
    """Say of all arms but the best one whether they are as good, open, or worse."""
    rest = ranking.best[1:]
    same = [arm for arm in rest if ranking.same(arm)]
    unknown = [arm for arm in rest if arm not in same]
    words = []
    if same:
        within = percent(metric.margin)
        words.append(f"{listed(same)} {_are(same)} the same within {within}")
    if unknown:
        words.append(f"{listed(unknown)} {_are(unknown)} not told apart from it")
    beaten = [arm for arm in ranking.order if arm not in ranking.best]
    worse = "all others are" if len(beaten) > 1 else f"{beaten[0]} is"
    words.append(f"{worse} shown to be worse than some arm, all pairs tested at once")
    return "; ".join(words)


def _are(names: Sequence[str]) -> str:
    return agreeing(len(names), "is", "are")


def how_sure(comparison: Comparison, cell: Cell) -> str:
    """Return the evidence on the best rival, which was picked for being the best."""
    if cell.shown_contrast is None:
        return ""
    count = len(comparison.rivals)
    picked = picked_ratio(comparison, cell, count)
    level = percent(comparison.manifest.options.confidence)
    return (
        f"ratio {ratio(picked.value)} to {comparison.manifest.baseline}, "
        f"{level} interval{for_all(count, 'arm')} {ratio_interval(picked)}, "
        f"p = {p_value(cell.shown_contrast.p)}"
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
                f"{of} under {len(found)} of {counted(len(cells), 'arm')} "
                f"{_range(found)}"
            )
    same = f"the same within {percent(cells[0].metric.margin)}"
    rest = (("equivalent", same), ("inconclusive", "undecided"))
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
    ends = [f"{finding(cell)} under {cell.arm}" for cell in (low, high)]
    return f"(by their estimates, from {' to '.join(ends)})"


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
        unharmed = f"{_unharmed(cells)}{_by_less(comparison, cells)}"
        return (f"No other class pays for it in latency: {unharmed}.",)
    many = len(rivals) > _PAYERS_NAMED
    paid = _payers_counted(comparison, worse) if many else _payers(worse)
    rest = f"; {open_}" if open_ else ""
    return (f"The price is paid by {paid}{rest}.",)


def _unharmed(cells: Sequence[Cell]) -> str:
    margins = {cell.metric.name: cell.metric.margin for cell in cells}
    same = any(cell.verdict.word == "equivalent" for cell in cells)
    within = f" or the same within {percent(max(margins.values()))}" if same else ""
    return f"each is better{within} under every arm"


def _by_less(comparison: Comparison, cells: Sequence[Cell]) -> str:
    """Name the classes that are told by a lower quantile than the first class is."""
    lower = {
        f"{cell.class_name} by its {cell.metric.label}"
        for cell in cells
        if cell.metric.quantile not in (None, comparison.headline.quantile)
    }
    if not lower:
        return ""
    label = comparison.headline.label
    return f" ({listed(sorted(lower))} where no {label} can be compared)"


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
        count = f"{len(undecided)} of {counted(len(cells), 'comparison')}"
        are = agreeing(len(undecided), "is", "are")
        worst = _largest_estimate(comparison, undecided, len(cells))
        parts.append(f"{count} {are} undecided{worst}")
    if missing:
        parts.append(f"{missing} of {len(cells)} cannot be made")
    return " and ".join(parts)


def _largest_estimate(comparison: Comparison, cells: Sequence[Cell], of: int) -> str:
    """Name the largest estimate to a class's harm, and how far its interval goes.

    It is picked out of ``of`` comparisons.
    """
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
    picked = picked_ratio(comparison, most, of)
    return (
        f" (by the largest estimate, {most.class_name} {most.metric.label} "
        f"{change(picked.value)} under {most.arm}, "
        f"interval{for_all(of, 'comparison')} {ratio_interval(picked)})"
    )


def _payers(worse: Sequence[Cell]) -> str:
    paid: dict[tuple[str, str], list[str]] = {}
    for cell in worse:
        words = f"{cell.metric.label} {finding(cell)}"
        paid.setdefault((cell.class_name, cell.arm), []).append(words)
    return listed(
        [f"{key[0]} under {key[1]} ({', '.join(words)})" for key, words in paid.items()]
    )


def _payers_counted(comparison: Comparison, worse: Sequence[Cell]) -> str:
    """Count the arms under which each class pays, and tell the largest estimate.

    It is picked out of every arm in latency and in goodput.
    """
    arms = len(comparison.rivals)
    by_class: dict[str, list[Cell]] = {}
    for cell in worse:
        by_class.setdefault(cell.class_name, []).append(cell)
    parts = []
    for name, cells in by_class.items():
        count = len({cell.arm for cell in cells})
        # Latency up or goodput down: whichever is the larger factor.
        most = max(cells, key=_factor)
        picked = picked_ratio(comparison, most, 2 * arms)
        parts.append(
            f"{name} under {count} of {counted(arms, 'arm')} (by the largest estimate, "
            f"{most.metric.label} {finding(most)} under {most.arm}, "
            f"interval{for_all(2 * arms, 'comparison')} {ratio_interval(picked)})"
        )
    return listed(parts)


def _factor(cell: Cell) -> float:
    assert cell.contrast is not None
    ratio = cell.contrast.ratio.value
    return max(ratio, 1 / ratio) if ratio > 0 else float("inf")
