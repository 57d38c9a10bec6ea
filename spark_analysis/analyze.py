"""``doorkeeper analyze``: from a run directory to its report.

Reads nothing but the recordings, and writes nothing but the report: the same recordings
give the same bytes, whenever and wherever it is run.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
from pathlib import Path
from typing import Final

from rich.console import Console

from spark_analysis.compare import compare
from spark_analysis.comparison import Comparison, results
from spark_analysis.contract import load_manifest
from spark_analysis.session import LOCAL, spark_session
from spark_analysis.table import as_csv, as_latex, as_markdown
from spark_analysis.tables import tables
from spark_analysis.terminal import show

# A file has no width; this one shows every column.
_PIPED_WIDTH: Final = 120
WRITERS: Final = {"csv": as_csv, "md": as_markdown, "tex": as_latex}


def analyze(
    run_dir: Path, out_dir: Path | None = None, master: str | None = None
) -> None:
    """Compare a run directory's arms, write the report, and print the comparison.

    ``out_dir`` defaults to ``report`` in the run directory, ``master`` to this machine.

    :raises spark_analysis.contract.RecordingError: if the recordings do not hold.
    :raises spark_analysis.java.NoJava: if nothing can run Spark.
    """
    out_dir = out_dir or run_dir / "report"
    manifest = load_manifest(run_dir)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    # Java starts in another process; meanwhile this one loads what it draws with.
    loading = threading.Thread(target=_load_matplotlib, daemon=True)
    loading.start()
    with (
        console.status("Spark is reading the recordings …"),
        spark_session(master or LOCAL) as spark,
    ):
        comparison = compare(spark, manifest)
    loading.join()
    with console.status("Drawing …"):
        write_report(comparison, out_dir)
    show(comparison, console)
    page = os.path.relpath(out_dir / "index.html")
    console.print(f"Report: {page}", style="bold", highlight=False)


def write_report(comparison: Comparison, out_dir: Path) -> None:
    """Write ``results.json``, ``words.json``, the tables, the figures and the page."""
    # Imported here: matplotlib takes longer to load than most commands take to run.
    from spark_analysis.figures.listing import plots
    from spark_analysis.figures.style import save, styled
    from spark_analysis.report.page import page
    from spark_analysis.words import words

    out_dir.mkdir(parents=True, exist_ok=True)
    found = json.dumps(results(comparison), indent=1, allow_nan=False)
    _write(out_dir / "results.json", found + "\n")
    said = json.dumps(words(comparison), indent=1, ensure_ascii=False)
    _write(out_dir / "words.json", said + "\n")
    for table in tables(comparison):
        for suffix, writer in WRITERS.items():
            _write(out_dir / "tables" / f"{table.name}.{suffix}", writer(table))
    listed = plots(comparison)
    figures = out_dir / "figures"
    with styled():
        for name, plot in listed.items():
            save(plot.draw(comparison), figures, name)
    svgs = {name: (figures / f"{name}.svg").read_text("utf-8") for name in listed}
    _write(out_dir / "index.html", page(comparison, listed, svgs))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _load_matplotlib() -> None:
    importlib.import_module("spark_analysis.figures.listing")
