"""Files of a report: ``results.json``, tables, figures, page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.tables import (
    Values,
    all_tables,
    as_csv,
    as_latex,
    as_markdown,
)
from spark_analysis.report.json_text import json_text

_WRITERS: Final = {"csv": as_csv, "md": as_markdown, "tex": as_latex}


def write_report(found: Results, runs: Iterable[Values], out_dir: Path) -> None:
    """Write the whole report; equal results give equal bytes."""
    # Imported here: importing matplotlib takes longer than most commands run.
    from spark_analysis.report.figures.listing import plots
    from spark_analysis.report.figures.style import save, styled
    from spark_analysis.report.page import page

    _write(out_dir / "results.json", json_text(found))
    tables = {table.name: table for table in all_tables(found, runs)}
    for table in tables.values():
        for suffix, written in _WRITERS.items():
            _write(out_dir / "tables" / f"{table.name}.{suffix}", written(table))
    listed = {plot.name: plot for plot in plots(found)}
    svgs = {}
    with styled():
        for name, plot in listed.items():
            save(plot.draw(), out_dir / "figures", name)
            path = out_dir / "figures" / f"{name}.svg"
            svgs[name] = path.read_text(encoding="utf-8")
    _write(out_dir / "index.html", page(found, tables, svgs, listed))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
