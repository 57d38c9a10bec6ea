"""``doorkeeper analyze``: from a run directory to its report.

Reads the recordings only and writes the report only: the same recordings give the same
bytes.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Final

from rich.console import Console

from spark_analysis.incidents.judging import judge_incident
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.worlds import hold_together
from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.recordings.load import without_damaged
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.session import LOCAL, spark_session
from spark_analysis.recordings.theory import NO_THEORY, load_theory
from spark_analysis.report.results import results_of, run_rows
from spark_analysis.report.terminal import show
from spark_analysis.report.writing import write_report

# Width for output that is not a terminal; it shows every column.
_PIPED_WIDTH: Final = 120
_MANIFEST: Final = "manifest.json"


def analyze(
    run_dir: Path,
    out_dir: Path | None = None,
    master: str | None = None,
    *,
    skip_damaged: bool = False,
) -> None:
    """Compare a run directory's arms, write the report, and print the comparison.

    A directory of worlds, each a run directory of one experiment, gets one report over
    all of them. ``out_dir`` defaults to ``report`` in the directory, ``master`` to this
    machine. ``skip_damaged`` leaves out runs of which a file cannot be read.

    :raises spark_analysis.recordings.contract.RecordingError: if the recordings are
        incomplete or damaged.
    :raises spark_analysis.recordings.java.NoJava: if there is no Java for Spark.
    :raises spark_analysis.recordings.session.SparkFailed: if Spark does not start.
    """
    out_dir = out_dir or run_dir / "report"
    manifests, silent = _manifests(run_dir)
    if skip_damaged:
        manifests = [without_damaged(manifest) for manifest in manifests]
    # A directory that cannot be made is reported before the work, not after it.
    out_dir.mkdir(parents=True, exist_ok=True)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    # Java starts in another process; meanwhile this one imports matplotlib.
    loading = threading.Thread(target=_load_matplotlib, daemon=True)
    loading.start()
    with (
        console.status("Spark is reading the recordings …"),
        spark_session(master or LOCAL) as spark,
    ):
        studies = [compare(spark, manifest) for manifest in manifests]
        incidents = [judge_incident(spark, manifest) for manifest in manifests]
    loading.join()
    alone = (run_dir / _MANIFEST).exists()
    theory = NO_THEORY if alone else load_theory(run_dir)
    worlds = hold_together(studies, silent, theory)
    elections = {it.manifest.world: it for it in incidents if it is not None}
    found = results_of(worlds, elections)
    with console.status("Drawing …"):
        write_report(found, list(run_rows(worlds)), out_dir)
    show(found, console)
    page = os.path.relpath(out_dir / "index.html")
    console.print(f"Report: {page}", style="bold", markup=False, highlight=False)


def _manifests(directory: Path) -> tuple[list[Manifest], dict[str, str]]:
    """Return the manifests of a run or of the worlds in a directory.

    The second value names worlds that cannot be compared, with the reason: one damaged
    world does not silence the others.

    :raises RecordingError: if nothing can be compared.
    """
    folders = sorted(path.parent for path in directory.glob(f"*/{_MANIFEST}"))
    if (directory / _MANIFEST).exists() or not folders:
        return [load_manifest(directory)], {}
    found, silent = [], {}
    for folder in folders:
        try:
            found.append(load_manifest(folder))
        except RecordingError as error:
            silent[folder.name] = str(error)
    if not found:
        raise RecordingError("; ".join(silent.values()))
    twice = [name for name, n in Counter(m.world for m in found).items() if n > 1]
    if twice:
        raise RecordingError(f"{directory}: two runs of the {twice[0]} world")
    return found, silent


def _load_matplotlib() -> None:
    importlib.import_module("spark_analysis.report.figures.listing")
