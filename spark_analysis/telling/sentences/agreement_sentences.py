"""A sentence for every disagreement of two worlds, or of a world and theory.

Told are the rivals in the metric that the witness tells first. What is neither shown to
agree nor to disagree is counted, for it is neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from spark_analysis.judging.pairs import Pair
from spark_analysis.judging.ranking import Ranking
from spark_analysis.judging.worlds import WorldCell, Worlds
from spark_analysis.telling.sentences.numbers import (
    agreeing,
    counted,
    digits,
    percent,
    ratio,
    ratio_interval,
)
from spark_analysis.telling.sentences.verdict_sentences import finding, subject


def agreement_sentences(worlds: Worlds) -> tuple[str, ...]:
    """Return how many comparisons agree, then every disagreement."""
    cells = compared(worlds)
    if not cells:
        return tuple(_of_theory(worlds))
    return (
        _count(worlds, cells),
        *_of_worlds(cells),
        *_orders(worlds),
        *_of_theory(worlds),
    )


def compared(worlds: Worlds) -> list[WorldCell]:
    """Return the cells of every two worlds that are told: rivals, the first metric."""
    metric, baseline = worlds.witness.headline, worlds.witness.manifest.baseline
    return [
        it
        for it in worlds.cells
        if it.witness.metric.name == metric.name and it.witness.arm != baseline
    ]


def _count(worlds: Worlds, cells: Sequence[WorldCell]) -> str:
    agree = sum(it.agreement == "agrees" for it in cells)
    against = sum(it.agreement in ("contradicts", "size differs") for it in cells)
    within, left = percent(worlds.margin), len(cells) - agree - against
    of = f"{worlds.witness.headline.label} to {worlds.witness.manifest.baseline}"
    return (
        f"Of {counted(len(cells), 'ratio')} of {of} asked of two worlds, {agree} "
        f"{_are(agree)} the same to within {within}, {against} {_are(against)} not, "
        f"and {left} {_are(left)} open."
    )


def _are(number: int) -> str:
    return agreeing(number, "is", "are")


def _of_worlds(cells: Sequence[WorldCell]) -> Iterator[str]:
    for it in cells:
        if it.agreement not in ("contradicts", "size differs"):
            continue
        where = f"At {it.point}, the" if it.point else "The"
        apart = ""
        if it.ratios is not None:
            apart = (
                f": the second ratio is {digits(it.ratios.value)} "
                f"({ratio_interval(it.ratios)}) of the first"
            )
        yield (
            f"{where} {subject(it.witness)} under {it.witness.arm} is "
            f"{finding(it.witness)} in the {it.first} world and {finding(it.other)} in "
            f"the {it.world} one{apart}."
        )


def _orders(worlds: Worlds) -> Iterator[str]:
    """Yield every two arms that two worlds put in opposite orders, both for certain."""
    for (one, name), (two, other) in combinations(worlds.orders, 2):
        if name != other:
            continue
        first, second = worlds.orders[one, name], worlds.orders[two, name]
        for pair in first.decisions:
            ahead = _ahead(first, pair), _ahead(second, pair)
            if None not in ahead and ahead[0] != ahead[1]:
                yield (
                    f"For {name}, {ahead[0]} is ahead of {_other(pair, ahead[0])} in "
                    f"the {one} world and behind it in the {two} one."
                )


def _ahead(order: Ranking, pair: Pair) -> str | None:
    """Return the arm of a pair that is shown to have the lower latency, if one is."""
    for asked, lower in ((pair, "lower"), (Pair(pair.second, pair.first), "higher")):
        decision = order.decisions.get(asked)
        if decision in ("lower", "higher"):
            return pair.first if decision == lower else pair.second
    return None


def _other(pair: Pair, arm: str | None) -> str:
    return pair.second if arm == pair.first else pair.first


def _of_theory(worlds: Worlds) -> Iterator[str]:
    rows = worlds.theory.rows
    if not rows:
        return
    agree = sum(row.verdict == "agrees" for row in rows)
    differ = [row for row in rows if row.verdict == "differs"]
    within = percent(worlds.theory.margin)
    yield (
        f"Of {counted(len(rows), 'ratio')} of mean latencies that theory knows, worlds "
        f"meet {agree} to within {within}, miss {len(differ)}, and leave "
        f"{len(rows) - agree - len(differ)} open."
    )
    baseline = worlds.witness.manifest.baseline
    for row in differ:
        yield (
            f"Theory has the mean latency of {row.class_name} under {row.arm} at "
            f"{ratio(row.predicted)} of {baseline}'s; in the {row.world} world it is "
            f"{ratio(row.measured.value)} ({ratio_interval(row.measured)})."
        )
