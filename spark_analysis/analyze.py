"""``doorkeeper analyze``: from a run directory to its report.

Reads nothing but the recordings, and writes nothing but the report: the same recordings
give the same bytes, whenever and wherever it is run.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rich.console import Console

from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.judging import judge_incident
from spark_analysis.incidents.worlds import IncidentWorlds, hold_incidents_together
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Worlds, hold_together
from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.recordings.load import without_damaged
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.session import LOCAL, spark_session
from spark_analysis.recordings.theory import load_theory
from spark_analysis.telling.results import (
    results,
    results_of_elections,
    results_of_incident,
    results_of_worlds,
)
from spark_analysis.telling.sentences.incident_sentences import incident_lead
from spark_analysis.telling.sentences.incident_world_sentences import (
    election_sentences,
)
from spark_analysis.telling.sentences.world_sentences import silent_worlds
from spark_analysis.telling.tables.agreement_table import agreement_tables
from spark_analysis.telling.tables.incident_table import incident_table
from spark_analysis.telling.tables.incident_worlds_table import (
    incident_worlds_tables,
)
from spark_analysis.telling.tables.point_tables import tables
from spark_analysis.telling.tables.sweep_tables import study_tables
from spark_analysis.telling.tables.table import Table, as_csv, as_latex, as_markdown
from spark_analysis.telling.tables.worlds_table import worlds_tables
from spark_analysis.telling.terminal import (
    show,
    show_elections,
    show_incident,
    show_worlds,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# With more points than this, a point has tables and no figures: nobody looks at four
# hundred pictures, and drawing them would take longer than the analysis.
POINTS_DRAWN_MAX: Final = 4
# A file has no width; this one shows every column.
_PIPED_WIDTH: Final = 120
_MANIFEST: Final = "manifest.json"
NO_INCIDENTS: Final[Mapping[str, Incident]] = MappingProxyType({})
WRITERS: Final = {"csv": as_csv, "md": as_markdown, "tex": as_latex}


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

    :raises spark_analysis.recordings.contract.RecordingError: if the recordings do not
    hold.
    :raises spark_analysis.recordings.java.NoJava: if nothing can run Spark.
    :raises spark_analysis.recordings.session.SparkFailed: if Spark does not start.
    """
    out_dir = out_dir or run_dir / "report"
    manifests, silent = _manifests(run_dir)
    if skip_damaged:
        manifests = [without_damaged(manifest) for manifest in manifests]
    # Before the work, not after it.
    out_dir.mkdir(parents=True, exist_ok=True)
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
        studies = [compare(spark, manifest) for manifest in manifests]
        incidents = [judge_incident(spark, manifest) for manifest in manifests]
    loading.join()
    alone = (run_dir / _MANIFEST).exists()
    with console.status("Drawing …"):
        if alone:
            write_report(studies[0], out_dir, incidents[0])
        else:
            worlds = hold_together(studies, silent, load_theory(run_dir))
            by_world = {it.manifest.world: it for it in incidents if it is not None}
            write_worlds(worlds, out_dir, by_world)
    if alone:
        show(studies[0], console)
        if incidents[0] is not None:
            show_incident(incidents[0], console)
    else:
        show_worlds(worlds, console)
        if by_world:
            elections = hold_incidents_together(list(by_world.values()))
            show_elections(elections, console)
    page = os.path.relpath(out_dir / "index.html")
    console.print(f"Report: {page}", style="bold", markup=False, highlight=False)


def _manifests(directory: Path) -> tuple[list[Manifest], dict[str, str]]:
    """Return the manifest of a run, or those of the worlds that a directory holds.

    With them, why others that it holds cannot be compared: one unsteady world does not
    silence the others.

    :raises RecordingError: if nothing there can be compared.
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


def write_worlds(
    worlds: Worlds, out_dir: Path, incidents: Mapping[str, Incident] = NO_INCIDENTS
) -> None:
    """Write one report over several worlds, and in it each world's own, by its name.

    ``incidents`` are their elections, by world.
    """
    from spark_analysis.telling.figures.style import styled
    from spark_analysis.telling.figures.worlds import worlds_forest
    from spark_analysis.telling.quotes import words_of_worlds
    from spark_analysis.telling.report.worlds_page import worlds_page

    for study in worlds.studies:
        world = study.manifest.world
        write_report(study, out_dir / world, incidents.get(world))
    numbers, told, first = results_of_worlds(worlds), words_of_worlds(worlds), ""
    if incidents:
        elections = hold_incidents_together(list(incidents.values()))
        numbers |= results_of_elections(elections)
        told["election"] = [*silent_worlds(worlds), *election_sentences(elections)]
        first = _write_elections(elections, out_dir)
    found = json.dumps(numbers, indent=1, allow_nan=False)
    _write(out_dir / "results.json", found + "\n")
    said = json.dumps(told, indent=1, ensure_ascii=False)
    _write(out_dir / "words.json", said + "\n")
    found_tables = (*agreement_tables(worlds), *worlds_tables(worlds))
    _write_tables(found_tables, out_dir / "tables")
    figures = {}
    with styled():
        for study in worlds.others:
            world = study.manifest.world
            path = out_dir / "figures" / f"worlds-{world}"
            figures[world] = _draw(worlds_forest(worlds, world), path)
    _write(out_dir / "index.html", worlds_page(worlds, figures, first))


def write_report(study: Study, out_dir: Path, incident: Incident | None = None) -> None:
    """Write ``results.json``, ``words.json``, the tables, the figures and the page.

    In a sweep, tables of a point lie in a folder of its own, named as its runs are;
    its figures, too, where there are so few points that somebody will look at them.
    """
    # Imported here: matplotlib takes longer to load than most commands take to run.
    from spark_analysis.telling.figures.listing import plots, study_plots
    from spark_analysis.telling.figures.style import styled
    from spark_analysis.telling.quotes import words, words_of_incident
    from spark_analysis.telling.report.page import page

    out_dir.mkdir(parents=True, exist_ok=True)
    numbers, told, first = results(study), words(study), ""
    if incident is not None:
        numbers["incident"] = results_of_incident(incident)
        told["incident"] = words_of_incident(incident)
        told["election"] = incident_lead(incident)
        first = _write_incident(incident, out_dir)
    found = json.dumps(numbers, indent=1, allow_nan=False)
    _write(out_dir / "results.json", found + "\n")
    said = json.dumps(told, indent=1, ensure_ascii=False)
    _write(out_dir / "words.json", said + "\n")
    _write_tables(study_tables(study), out_dir / "tables")
    figures: dict[str, str] = {}
    with styled():
        for name, plot in study_plots(study).items():
            figures[name] = _draw(plot.draw(study), out_dir / "figures" / name)
        for index, comparison in enumerate(study.comparisons):
            folder = study.folder(index)
            _write_tables(tables(comparison), out_dir / "tables" / folder)
            if len(study.comparisons) > POINTS_DRAWN_MAX:
                continue
            for name, of_point in plots(comparison).items():
                path = Path(folder, name)
                drawn = _draw(of_point.draw(comparison), out_dir / "figures" / path)
                figures[path.as_posix()] = drawn
    _write(out_dir / "index.html", page(study, figures, first))


def _write_incident(incident: Incident, out_dir: Path) -> str:
    """Write an election's tables and its panel; return its part of the page."""
    from spark_analysis.telling.figures.incident_timeline import timelines
    from spark_analysis.telling.figures.style import styled
    from spark_analysis.telling.report.incident_part import incident_part

    alone = hold_incidents_together([incident])
    _write_tables(
        [incident_table(incident), *incident_worlds_tables(alone)], out_dir / "tables"
    )
    with styled():
        svg = _draw(timelines(incident), out_dir / "figures" / "incident")
    return incident_part(incident, svg)


def _write_elections(elections: IncidentWorlds, out_dir: Path) -> str:
    """Write the tables and the panel of several worlds; return their part of a page."""
    from spark_analysis.telling.figures.incident_timeline import timelines
    from spark_analysis.telling.figures.style import styled
    from spark_analysis.telling.report.incident_part import incident_worlds_part

    _write_tables(incident_worlds_tables(elections), out_dir / "tables")
    with styled():
        drawn = timelines(*elections.incidents)
        svg = _draw(drawn, out_dir / "figures" / "incident")
    return incident_worlds_part(elections, svg)


def _write_tables(found: Iterable[Table], folder: Path) -> None:
    for table in found:
        for suffix, writer in WRITERS.items():
            _write(folder / f"{table.name}.{suffix}", writer(table))


def _draw(figure: Figure, path: Path) -> str:
    """Save a figure as SVG and PNG, and return the SVG."""
    from spark_analysis.telling.figures.style import save

    save(figure, path.parent, path.name)
    return path.with_suffix(".svg").read_text("utf-8")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _load_matplotlib() -> None:
    importlib.import_module("spark_analysis.telling.figures.listing")
