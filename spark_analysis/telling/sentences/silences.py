"""Where there is nothing to tell of a class: said in words, not left as an empty cell.

A class is silent where none of its requests fall into the time that is measured, and
where none of them got a good answer: that run has no latency of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.study import Study
from spark_analysis.telling.sentences.numbers import agreeing, counted, listed

# Blocks and points are named up to this number, and counted beyond.
_NAMED = 3


def silences(comparison: Comparison) -> tuple[str, ...]:
    """Return one sentence for each class and each way in which it is silent."""
    unit = "block" if comparison.manifest.episodes is None else "round"
    found = [
        f"No request of {name} falls into the time that is measured: nothing is said "
        "of it."
        for name in _absent(comparison)
    ]
    for name in comparison.class_names:
        if comparison.manifest.episodes is None:
            # A round is too short for every class to have a request in each.
            found += _not_in_all_blocks(comparison, name)
        arms = [
            f"{arm} in {_where(blocks, comparison.manifest.blocks, unit)}"
            for arm, blocks in _unanswered(comparison, name).items()
        ]
        if arms:
            found.append(
                f"No request of {name} got a good answer in time under {listed(arms)}: "
                "it has no latency there, and counts as infinitely late."
            )
    return tuple(found)


def study_silences(study: Study) -> tuple[str, ...]:
    """Return the same of a sweep, with the points where it is so."""
    absent: Counter[str] = Counter()
    mute: dict[tuple[str, str], list[str]] = {}
    for comparison in study.comparisons:
        absent.update(_absent(comparison))
        for name in comparison.class_names:
            for arm in _unanswered(comparison, name):
                point = comparison.manifest.point.name
                mute.setdefault((name, arm), []).append(point)
    of = len(study.comparisons)
    found = [
        f"At {count} of {counted(of, 'point')} no request of {name} falls into the "
        "time that is measured: nothing is said of it there."
        for name, count in absent.items()
    ]
    found += [
        f"No request of {name} got a good answer in time under {arm} in some block at "
        f"{_points(points, of)}: it has no latency there, and counts as infinitely "
        "late."
        for (name, arm), points in mute.items()
    ]
    return tuple(found)


def _points(points: Sequence[str], of: int) -> str:
    if len(points) <= _NAMED:
        return listed(points)
    return f"{len(points)} of {counted(of, 'point')}"


def _absent(comparison: Comparison) -> list[str]:
    """Return the classes that no request in the window belongs to."""
    present = comparison.class_names
    return [it.name for it in comparison.manifest.classes if it.name not in present]


def _not_in_all_blocks(comparison: Comparison, class_name: str) -> Iterator[str]:
    """Say that a class has requests in some blocks only: all arms met the same ones."""
    blocks = comparison.manifest.blocks
    there = {run.block for run in comparison.run_values if run.class_name == class_name}
    missing = [block for block in blocks if block not in there]
    if missing:
        of = counted(len(blocks), "block")
        yield (
            f"No request of {class_name} came in {_where(missing, blocks, 'block')}: "
            f"it is told, and compared, by {len(there)} of {of}."
        )


def _unanswered(comparison: Comparison, class_name: str) -> dict[str, list[int]]:
    """Return the blocks in which no request of a class got a good answer, by arm."""
    found: dict[str, list[int]] = {}
    for run in comparison.run_values:
        if run.class_name == class_name and not run.counts["ok"]:
            found.setdefault(run.arm, []).append(run.block)
    return found


def _where(found: Sequence[int], blocks: Sequence[int], unit: str) -> str:
    """Name the blocks, or count them where there are many."""
    if len(found) == len(blocks):
        return f"any {unit}"
    if len(found) > _NAMED:
        return f"{len(found)} of {counted(len(blocks), unit)}"
    units = agreeing(len(found), unit, f"{unit}s")
    return f"{units} {listed(map(str, found))}"
