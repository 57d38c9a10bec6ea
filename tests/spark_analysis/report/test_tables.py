"""Tables of a report as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_analysis.report.content.tables import (
    Table,
    all_tables,
    as_csv,
    as_latex,
    as_markdown,
    comparison_table,
    ends,
    number,
    text,
)
from tests.spark_analysis.made_results import BETTER, REFUSED, made

CELLS = {("control", "wfq"): BETTER, ("control", "planes"): REFUSED}
WORDS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=20)


def _table(words: str, value: float | None) -> Table:
    columns = (text("name"), number("x", "x"), ends("CI", "low", "high"))
    row = {"name": words, "x": value, "low": value, "high": None}
    return Table(name="t", caption="A caption.", columns=columns, rows=(row,))


@given(WORDS, st.floats(allow_nan=False, allow_infinity=False) | st.none())
def test_csv_keeps_every_digit_and_any_name(words: str, value: float | None) -> None:
    head, row = csv.reader(io.StringIO(as_csv(_table(words, value))))
    assert head == ["name", "x", "low", "high"]
    assert row[0] == words
    assert row[1] == ("" if value is None else repr(value))
    assert row[3] == ""


@given(WORDS)
def test_markdown_rows_have_a_cell_per_column(words: str) -> None:
    _, _, *lines = as_markdown(_table(words, 1.0)).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}


@pytest.mark.parametrize("character", "&%$#_{}~^\\")
def test_latex_escapes(character: str) -> None:
    written = as_latex(_table(f"a{character}b", 1.0))
    (row,) = (line for line in written.splitlines() if line.startswith("a"))
    assert f"a{character}b" not in row.replace("\\" + character, "")


def test_the_comparison_has_a_row_for_each_class_and_arm() -> None:
    found = made({"live": CELLS, "virtual": CELLS})
    table = comparison_table(found)
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    places = [(row["world"], row["class"], row["arm"]) for row in rows]
    arms = ("fifo", "wfq", "planes", "fifo-again")
    assert places == [(w, "control", arm) for w in ("live", "virtual") for arm in arms]
    assert rows[1]["p99_ms"] == str(10 * 0.09)


def test_tables_without_rows_are_left_out() -> None:
    names = {table.name for table in all_tables(made(CELLS), ())}
    assert names == {"comparison", "cells", "noise"}
