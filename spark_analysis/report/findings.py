"""Page of findings: ``docs/results.md``, rendered from the results of experiments.

The template holds the prose. Results, first-screen tables and figures of each
experiment are kept as files next to the page, so the page can be rendered again without
recordings.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.report.content.paper_tables import tables_of
from spark_analysis.report.content.rendering import sentence
from spark_analysis.report.content.schema import Results, Row
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.content.tables import as_csv, as_markdown, factors_of
from spark_analysis.report.doses import DOSES
from spark_analysis.report.json_text import json_text
from spark_analysis.report.paper import (
    FAULTS,
    judged_predictions,
    naming,
    read_doses,
    read_results,
)
from spark_analysis.report.predictions import JUDGEMENT

# Parts of the results that only figures use.
_DRAWN: Final = ("curves", "phases", "queue")


class Experiment:
    """One experiment as used by the template."""

    def __init__(self, name: str, found: Results) -> None:
        self.name = name
        self.found = found
        self.summary = Summary(found)

    @property
    def table(self) -> str:
        """The first screen's table in Markdown."""
        return as_markdown(self.summary.table).strip()

    @property
    def paper_table(self) -> str:
        """The paper's table in Markdown: capacities, or an election's measures."""
        return as_markdown(tables_of(self.found)[0]).strip()

    @property
    def sentences(self) -> str:
        """The first screen's sentences, cautions first."""
        it = self.summary
        return " ".join([*it.cautions, *it.sentences, it.noise]).strip()

    @property
    def design(self) -> str:
        """Arms, and the levels of the factors that vary."""
        arms = [arm["name"] for arm in self.found["arms"] if not arm["again_of"]]
        return sentence("design", arms=arms, factors=factors_of(self.found))

    @property
    def source(self) -> str:
        """Origin of the numbers: worlds, sessions, seed, date, commit."""
        parts = [
            f"{it['world']} ({it['sessions']} sessions, seed {it['seed']}, "
            f"{it['created'][:10]}, commit `{it['commit'][:10]}`)"
            for it in self.found["worlds"]
        ]
        return "; ".join(parts)

    def row(self, class_name: str, arm: str, point: str = "") -> Row:
        """Return a row of the reference world in the primary metric.

        :raises KeyError: if there is none.
        """
        row = self.summary.row(self.summary.world, class_name, arm, point)
        if row is None:
            raise KeyError((class_name, arm, point))
        return row


def collect(runs: Path, data: Path, template: Path) -> list[str]:
    """Copy each analysed experiment's results to files next to the page.

    Of its figures, only those named in the template are copied. Returns the names of
    the copied experiments.
    """
    prose = _prose(template)
    data.mkdir(parents=True, exist_ok=True)
    names = []
    for report in sorted(runs.glob("*/report/results.json")):
        name = report.parents[1].name
        experiment = _read(name, report)
        for key in _DRAWN:
            experiment.found[key] = []
        summary = as_csv(experiment.summary.table)
        (data / f"{name}.json").write_text(
            json_text(experiment.found), encoding="utf-8"
        )
        (data / f"{name}.csv").write_text(summary, encoding="utf-8")
        for figure in sorted(report.parent.glob("figures/*.svg")):
            if f"/{name}-{figure.name})" in prose:
                shutil.copy(figure, data / f"{name}-{figure.name}")
        names.append(name)
    return names


def _prose(template: Path) -> str:
    with naming(template):
        return template.read_text(encoding="utf-8")


def _read(name: str, path: Path) -> Experiment:
    """Return an experiment of which a page can be rendered.

    :raises RecordingError: if the file is missing or damaged.
    """
    experiment = Experiment(name, read_results(path))
    with naming(path):
        for text in (experiment.table, experiment.sentences, experiment.source):
            text.encode()
    return experiment


def render(template: Path, data: Path) -> str:
    """Return the page.

    :raises RecordingError: if the template names an experiment or row that is missing.
    """
    experiments = {
        path.stem: _read(path.stem, path) for path in sorted(data.glob("*.json"))
    }
    judged = judged_predictions(data / JUDGEMENT)
    doses = {
        path.stem: read_doses(path) for path in sorted(data.glob(f"{DOSES}/*.json"))
    }
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    try:
        page = environment.get_template(template.name)
        return page.render(of=experiments, prediction=judged, doses=doses)
    except (TemplateError, *FAULTS) as error:
        raise RecordingError(f"{template}: {error}") from error
