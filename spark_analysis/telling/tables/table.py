"""A table: rows of raw values, one formatter per column, and the files made of it.

The same rows give CSV with every digit for a machine, and Markdown and LaTeX for a
person. Rules as in booktabs: three lines, no verticals.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_analysis.statistics.intervals import Estimate
from spark_analysis.telling.sentences.numbers import (
    NONE,
    THIN_SPACE,
    digits,
    interval,
    p_value,
    ratio,
    ratio_interval,
)

Format = Callable[[Any], str]


def _text(value: Any) -> str:
    return NONE if value is None else str(value)


def number(value: float | None) -> str:
    """Write a measured number."""
    return digits(value)


def p_or_none(value: float | None) -> str:
    """Write a p-value."""
    return NONE if value is None else p_value(value)


def ends(value: Estimate | None) -> str:
    """Write an interval; as CSV it becomes two columns."""
    return NONE if value is None else interval(value)


def count(value: int | None) -> str:
    """Write how many, every digit."""
    return NONE if value is None else f"{value:,}".replace(",", THIN_SPACE)


def ratio_or_none(value: float | None) -> str:
    """Write a ratio."""
    return ratio(value)


def ratio_ends(value: Estimate | None) -> str:
    """Write an interval of a ratio; as CSV it becomes two columns."""
    return NONE if value is None else ratio_interval(value)


def share_ends(value: Estimate | None) -> str:
    """Write an interval of a share, which may be negative; two columns as CSV."""
    return NONE if value is None else f"{digits(value.low)} to {digits(value.high)}"


def plain_number(value: int) -> str:
    """Write an ordinal."""
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its name for machines, its heading for people, how to write a value."""

    name: str
    heading: str
    write: Format = _text

    @property
    def numeric(self) -> bool:
        """Whether the column is aligned to the right."""
        return self.write is not _text


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its caption; a row holds raw values in the order of ``columns``."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]

    def written(self) -> list[list[str]]:
        """Return every value as people read them."""
        return [
            [c.write(value) for c, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


# ---- as files ----


_SPREAD = (ends, ratio_ends, share_ends)


def as_csv(table: Table) -> str:
    """Write raw values; an interval becomes two columns, nothing becomes nothing."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names: list[str] = []
    for column in table.columns:
        spread = column.write in _SPREAD
        names += (
            [f"{column.name}_low", f"{column.name}_high"] if spread else [column.name]
        )
    writer.writerow(names)
    for row in table.rows:
        texts: list[Any] = []
        for column, value in zip(table.columns, row, strict=True):
            if column.write in _SPREAD:
                texts += [value.low, value.high] if value is not None else ["", ""]
            else:
                texts.append("" if value is None else value)
        writer.writerow(texts)
    return out.getvalue()


def as_markdown(table: Table) -> str:
    """Write a table that reads well as plain text, too."""
    headings = [column.heading for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    lines = [headings, rules, *_without_pipes(table.written())]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table.caption}\n\n{body}\n"


def _without_pipes(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[text.replace("|", "\\|") for text in row] for row in rows]


def as_latex(table: Table) -> str:
    """Write a ``table`` for LaTeX with ``booktabs``."""
    spec = "".join("r" if column.numeric else "l" for column in table.columns)
    headings = " & ".join(_latex(column.heading) for column in table.columns)
    rows = [" & ".join(_latex(text) for text in row) for row in table.written()]
    body = "\n".join(f"{row} \\\\" for row in rows)
    return (
        "\\begin{table}\n"
        f"\\caption{{{_latex(table.caption)}}}\n"
        f"\\begin{{tabular}}{{{spec}}}\n\\toprule\n{headings} \\\\\n\\midrule\n"
        f"{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "†": r"\textdagger{}",
    "∞": r"$\infty$",
    "−": r"$-$",
    "–": "--",
    THIN_SPACE: r"\,",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
