"""Tables of findings, from what a report's ``results.json`` holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_analysis.statistics.intervals import Estimate
from spark_analysis.telling.findings.spec import Ahead, Ratios, SpecError
from spark_analysis.telling.sentences.numbers import (
    NONE,
    digits,
    interval,
    percent,
    ratio,
    ratio_interval,
)

Results = Mapping[str, Any]
# One entry of a list in ``results.json``.
ResultRow = Mapping[str, Any]


def ratios_table(table: Ratios, results: Results) -> list[str]:
    """Return a table of ratios or values as lines of Markdown.

    :raises SpecError: if it names what the results do not hold.
    """
    levels = _levels(results)
    rows = [row for row in results["rows"] if _fits(row, table.where, levels)]
    lines = list(dict.fromkeys(row[table.rows] for row in rows))
    headings = [table.heading, *(column.heading for column in table.columns)]
    written = []
    for line in lines:
        mine = [row for row in rows if row[table.rows] == line]
        cells = [_one(mine, column.where, levels) for column in table.columns]
        named = _point(levels[line], table.where) if table.rows == "point" else line
        written.append([named, *(_cell(table.cell, each) for each in cells)])
    return _markdown(headings, written)


def ahead_table(table: Ahead, results: Results) -> list[str]:
    """Return how often each of two arms is ahead, a line for each level of a factor.

    Above the table stands what it is about.

    :raises SpecError: if it names what the results do not hold.
    """
    levels = _levels(results)
    first, second = table.pair
    rows = [
        row
        for row in results.get("pairs", [])
        if (row["first"], row["second"]) == table.pair
        and _fits(row, table.where, levels)
    ]
    if not rows:
        raise SpecError(f"no pair {first}, {second} where {dict(table.where)}")
    found: dict[str, list[ResultRow]] = {}
    for row in rows:
        found.setdefault(levels[row["point"]][table.factor], []).append(row)
    names = [first, second, "same", "undecided"]
    written = []
    for level, each in found.items():
        count = Counter(_word(row) for row in each)
        written.append([level, *(str(count[name]) for name in names), _ends(each)])
    about = ", ".join(value.removesuffix("_ms") for value in table.where.values())
    headings = [table.factor, f"{first} ahead", f"{second} ahead"]
    same = f"the same within {percent(rows[0]['margin'])}"
    headings += [same, "not decided", f"{first} / {second}"]
    caption = (
        f"At how many points {first} or {second} is ahead ({about}), and the ratios, "
        "from the least estimate to the greatest, with intervals for all points at "
        "once:"
    )
    return [caption, "", *_markdown(headings, written)]


def _ends(rows: Sequence[ResultRow]) -> str:
    """Write the least ratio and the greatest: what is picked has its own interval."""
    known = [
        _bounded(row["ratio"], row["low_at_once"], row["high_at_once"])
        for row in rows
        if row["ratio"] is not None
    ]
    if not known:
        return NONE
    ends = dict.fromkeys((min(known), max(known)))
    return " to ".join(f"{ratio(it.value)} ({ratio_interval(it)})" for it in ends)


def _bounded(value: float, low: float | None, high: float | None) -> Estimate:
    """Return an estimate; an end that is not known is as far as can be."""
    return Estimate(
        value, 0.0 if low is None else low, math.inf if high is None else high
    )


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table whose first column is text and whose others are numbers."""
    rules = ["---", *("---:" for _ in headings[1:])]
    lines = [headings, rules, *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _word(row: ResultRow) -> str:
    ahead = str(row["ahead"])
    return "undecided" if ahead.startswith("refused") else ahead


def _levels(results: Results) -> dict[str, dict[str, str]]:
    return {it["point"]: it["levels"] for it in results.get("points", [])}


def _fits(row: ResultRow, where: Mapping[str, str], levels: Mapping[str, Any]) -> bool:
    """Say whether a row has these values, its own or those of its point."""
    known = {**levels.get(row.get("point", ""), {}), **row}
    for key in where:
        if key not in known:
            raise SpecError(f"no {key!r} in the results")
    return all(known[key] == value for key, value in where.items())


def _one(
    rows: list[ResultRow], where: Mapping[str, str], levels: Mapping[str, Any]
) -> ResultRow:
    found = [row for row in rows if _fits(row, where, levels)]
    if len(found) != 1:
        raise SpecError(f"{len(found)} rows where {dict(where)}, expected one")
    return found[0]


def _point(levels: Mapping[str, str], where: Mapping[str, str]) -> str:
    """Name a point by the factors that the table does not hold fast."""
    return ", ".join(_free(levels, where))


def _free(levels: Mapping[str, str], where: Mapping[str, str]) -> Iterator[str]:
    for factor, level in levels.items():
        if factor not in where:
            yield f"{factor} {level}"


def _cell(kind: str, row: ResultRow) -> str:
    prefix = "ratio_" if kind == "ratio" else ""
    value, low, high = row[kind], row[f"{prefix}low"], row[f"{prefix}high"]
    if value is None:
        return NONE
    if row["verdict"] == "baseline" and kind == "ratio":
        return "1"
    known = _bounded(value, low, high)
    write, ends = (ratio, ratio_interval) if kind == "ratio" else (digits, interval)
    return f"{write(value)} ({ends(known)})"
