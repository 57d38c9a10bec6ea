"""``doorkeeper analyze``: from a run directory to its report.

Reads recordings only and writes the report only. Equal recordings give equal bytes.
"""

from __future__ import annotations

import importlib
import os
import threading
from pathlib import Path
from typing import Final

from rich.console import Console

from spark_analysis.incidents.judging import judge_incident
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.world_agreement import hold_together
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.load import without_damaged
from spark_analysis.recordings.run_directory import (
    Recordings,
    local_directory,
    recordings_at,
    recordings_here,
)
from spark_analysis.recordings.spark_session import LOCAL, spark_session
from spark_analysis.recordings.theory import NO_THEORY, load_theory
from spark_analysis.report.results import results_of, run_rows
from spark_analysis.report.terminal import show
from spark_analysis.report.writing import write_report

# Width for output that is not a terminal; it shows every column.
_PIPED_WIDTH: Final = 120


def analyze(
    run_dir: Path | str,
    out_dir: Path | None = None,
    master: str | None = None,
    *,
    skip_damaged: bool = False,
) -> None:
    """Compare a run directory's arms, write the report, and print the comparison.

    A directory of worlds, each a run directory of one experiment, gets one report over
    all of them. The directory is a path, or a URI that Spark reads. ``out_dir``
    defaults to ``report`` in it, and is required for a URI. ``master`` is a Spark
    cluster or a Spark Connect server, by default this machine. ``skip_damaged`` omits
    runs with an unreadable file.

    :raises spark_analysis.recordings.contract.RecordingError: if the recordings are
        incomplete or damaged.
    :raises spark_analysis.recordings.java.NoJava: if there is no Java for Spark.
    :raises spark_analysis.recordings.spark_session.SparkFailed: if Spark does not
        start.
    """
    here = local_directory(str(run_dir))
    recorded = None if here is None else recordings_here(here)
    if out_dir is None:
        if here is None:
            raise RecordingError(f"{run_dir}: give --out DIR, a directory here")
        out_dir = here / "report"
    # A directory that cannot be created is reported before the work.
    out_dir.mkdir(parents=True, exist_ok=True)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    # Java starts in another process; meanwhile this one imports matplotlib.
    loading = threading.Thread(target=_load_matplotlib, daemon=True)
    loading.start()
    with (
        console.status("Spark is reading the recordings …"),
        spark_session(master or LOCAL, rows=_rows(recorded)) as spark,
    ):
        recorded = recorded or recordings_at(spark, str(run_dir))
        manifests = recorded.manifests
        if skip_damaged:
            manifests = [without_damaged(spark, manifest) for manifest in manifests]
        studies = [compare(spark, manifest) for manifest in manifests]
        incidents = [judge_incident(spark, manifest) for manifest in manifests]
    loading.join()
    theory = NO_THEORY if recorded.alone or here is None else load_theory(here)
    worlds = hold_together(studies, recorded.silent, theory)
    elections = {it.manifest.world: it for it in incidents if it is not None}
    found = results_of(worlds, elections)
    with console.status("Drawing …"):
        write_report(found, list(run_rows(worlds)), out_dir)
    show(found, console)
    page = os.path.relpath(out_dir / "index.html")
    console.print(f"Report: {page}", style="bold", markup=False, highlight=False)


def _rows(recorded: Recordings | None) -> int:
    """Return how many requests the manifests count; 0 before they are read."""
    manifests = recorded.manifests if recorded else ()
    return sum(run.counts["sent"] for it in manifests for run in it.runs_compared)


def _load_matplotlib() -> None:
    importlib.import_module("spark_analysis.report.figures.listing")
