"""The answer in two sentences: what becomes of the first class, and who pays for it.

With a handful of rivals each is named; with more, how many gained and the extremes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_analysis.comparison import Cell, Comparison
from spark_analysis.sentences import finding, sentence, story, subject
from spark_analysis.wording import listed, quantity

# More rivals than this are counted instead of named.
_NAMED: Final = 4


def lead(comparison: Comparison) -> tuple[str, ...]:
    """Return one or two sentences on the first class and on the others."""
    first, metric = comparison.class_names[0], comparison.headline
    baseline, rivals = comparison.manifest.baseline, comparison.rivals
    base = comparison.cell(first, baseline, metric.name)
    if base.refused or not rivals:
        return (sentence(comparison, base),)
    value = quantity(base.measured.estimate.value, metric)
    cells = [comparison.cell(first, arm, metric.name) for arm in rivals]
    changes = _named(cells) if len(rivals) <= _NAMED else _counted(cells)
    told = f"The {subject(base)}, {value} under {baseline}, is {changes}."
    others = [cell for arm in rivals for cell in story(comparison, arm).others]
    return (told, _price(others, len(rivals))) if others else (told,)


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


def _price(others: Sequence[Cell], arms: int) -> str:
    """Say what is paid: the worse cells by name, the undecided ones by number."""
    worse = [cell for cell in others if cell.verdict.word == "worse"]
    undecided = sum(cell.verdict.word == "inconclusive" for cell in others)
    rest = (
        f"; {undecided} of {len(others)} comparisons are undecided" if undecided else ""
    )
    if not worse:
        return f"No other class was found to pay for it{rest}."
    paid = _payers(worse) if arms <= _NAMED else _payers_counted(worse, arms)
    return f"The price is paid by {paid}{rest}."


def _payers(worse: Sequence[Cell]) -> str:
    paid: dict[tuple[str, str], list[str]] = {}
    for cell in worse:
        words = f"{cell.metric.label} {finding(cell)}"
        paid.setdefault((cell.class_name, cell.arm), []).append(words)
    return listed(
        [f"{key[0]} under {key[1]} ({', '.join(told)})" for key, told in paid.items()]
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
        told = f"{most.metric.label} {finding(most)} under {most.arm}"
        parts.append(f"{name} under {count} of {arms} arms (at most {told})")
    return listed(parts)


def _factor(cell: Cell) -> float:
    assert cell.contrast is not None
    ratio = cell.contrast.ratio.value
    return max(ratio, 1 / ratio) if ratio > 0 else float("inf")
