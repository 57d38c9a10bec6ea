"""Comparison on a terminal: the first screen of the report in at most 25 lines."""

from __future__ import annotations

from typing import Final

from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from spark_analysis.report.content.numbers import THIN_SPACE
from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.content.tables import Column, Table, incident_table

LINES_MAX: Final = 25
_PADDING: Final = 2
_STYLES: Final = {"better": "green", "worse": "red", "equivalent": "blue"}


def show(found: Results, console: Console) -> None:
    """Print title, sentences, cautions and the table."""
    summary = Summary(found)
    console.print()
    console.print(Text(found["title"] or found["name"], style="bold"))
    for line in summary.sentences:
        console.print(_plain(line))
    for line in summary.cautions:
        console.print(_plain(line, "bold red"))
    if summary.noise:
        console.print(_plain(summary.noise, "dim"))
    table = _of_election(found) if "election" in found else summary.table
    console.print(_drawn(table, console.width))


def _of_election(found: Results) -> Table:
    """Return the reference world's measures."""
    whole = incident_table(found)
    world = found["worlds"][0]["world"]
    rows = tuple(row for row in whole.rows if row["world"] == world)
    wanted = ("measure", "unit", "arm", "mean", "difference", "p", "verdict")
    columns = tuple(it for it in whole.columns if it.heading in wanted)
    decided = tuple(row for row in rows if row["verdict"] in ("better", "worse"))
    return Table(name="", caption="", columns=columns, rows=decided[: LINES_MAX - 9])


def _drawn(table: Table, width: int) -> RichTable:
    """Return the table with the leading columns that fit the width."""
    drawn = RichTable(box=None, pad_edge=False, header_style="bold")
    columns = _fitting(table, width)
    for column in columns:
        justify: JustifyMethod = "right" if column.numeric else "left"
        drawn.add_column(column.heading, justify=justify, no_wrap=True)
    for row in table.rows:
        cells = []
        for column in columns:
            words = column.text(row)
            style = _STYLES.get(words.rsplit(" ", 1)[-1], "")
            cells.append(_plain(words, style))
        drawn.add_row(*cells)
    return drawn


def _fitting(table: Table, width: int) -> list[Column]:
    found: list[Column] = []
    for column in table.columns:
        texts = (column.heading, *(column.text(row) for row in table.rows))
        width -= max(map(len, texts)) + _PADDING
        if width < 0 and found:
            break
        found.append(column)
    return found


def _plain(text: str, style: str = "") -> Text:
    """Return text without narrow spaces, where a terminal would break lines."""
    return Text(text.replace(f"{THIN_SPACE}%", "%").replace(THIN_SPACE, ","), style)
