"""File of an incident's dose and response: measures of an election at each point.

The file is kept next to the results of experiments, in ``doses/``, with its figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from matplotlib.figure import Figure

from spark_analysis.incidents.incident import Incident
from spark_analysis.recordings.contract import Manifest
from spark_analysis.report.content.numbers import digits
from spark_analysis.report.content.paper_tables import marked
from spark_analysis.report.content.rendering import sentence
from spark_analysis.report.content.tables import Table, as_markdown, text
from spark_analysis.report.figures.interval_bars import (
    Interval,
    draw_interval,
    limits_of,
)
from spark_analysis.report.figures.style import (
    MUTED,
    log_scale,
    new_figure,
    plain_log_axis,
)
from spark_analysis.report.json_text import json_text
from spark_analysis.report.results import finite

DOSES: Final = Path("doses")
# Measures of the table; the first is drawn.
SHOWN: Final = ("step_down_ms", "unwritable_ms", "lost", "timed_out", "recover_ms")
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


class DoseRow(TypedDict):
    """One measure of one arm at one point: its mean over incidents, its interval.

    Unbounded numbers are null.
    """

    levels: dict[str, str]
    arm: str
    measure: str
    heading: str
    value: float | None
    low: float | None
    high: float | None
    verdict: str
    incidents: int


class Doses(TypedDict):
    """Content of the file."""

    name: str
    world: str
    baseline: str
    seed: int
    created: str
    commit: str
    rows: list[DoseRow]


def doses_of(manifest: Manifest, incidents: Mapping[str, Incident]) -> Doses:
    """Return the content of the file; ``incidents`` are judged, by point."""
    levels = {point.name: dict(point.levels) for point in manifest.points}
    return {
        "name": manifest.name,
        "world": manifest.world,
        "baseline": manifest.baseline,
        "seed": manifest.seed,
        "created": manifest.created,
        "commit": str(manifest.code.get("commit", "unknown"))[:10],
        "rows": [
            row
            for point, incident in incidents.items()
            for row in _rows(levels[point], incident)
        ],
    }


def _rows(levels: dict[str, str], incident: Incident) -> Iterator[DoseRow]:
    for cell in incident.cells:
        if cell.measure.name in SHOWN:
            yield {
                "levels": levels,
                "arm": cell.arm,
                "measure": cell.measure.name,
                "heading": cell.measure.heading,
                "value": finite(cell.estimate.value),
                "low": finite(cell.estimate.low),
                "high": finite(cell.estimate.high),
                "verdict": cell.word,
                "incidents": len(incident.manifest.blocks),
            }


@dataclass(frozen=True, slots=True)
class DoseResponse:
    """The file as used by the page of experiments."""

    found: Doses

    @property
    def source(self) -> str:
        """Origin of the numbers."""
        least = min(row["incidents"] for row in self.found["rows"])
        return (
            f"{self.found['world']} (at least {least} incidents of each arm and cell, "
            f"seed {self.found['seed']}, {self.found['created'][:10]}, commit "
            f"`{self.found['commit']}`)"
        )

    @property
    def table(self) -> Table:
        """A row per cell, a column per measure with the means of all arms."""
        arms = list(dict.fromkeys(row["arm"] for row in self.found["rows"]))
        headings = {row["measure"]: row["heading"] for row in self.found["rows"]}
        rows: dict[tuple[str, ...], dict[str, str]] = {}
        for row in self.found["rows"]:
            place = rows.setdefault(tuple(row["levels"].values()), {**row["levels"]})
            value = "∞" if row["value"] is None else digits(row["value"])
            word = marked(value, row["verdict"])
            before = place.get(row["measure"])
            place[row["measure"]] = word if before is None else f"{before} / {word}"
        return Table(
            name="doses",
            caption=sentence(
                "doses_caption", baseline=self.found["baseline"], arms=arms
            ),
            columns=(
                *(text(name) for name in self.found["rows"][0]["levels"]),
                *(text(headings[name], name) for name in SHOWN),
            ),
            rows=tuple(rows.values()),
        )

    @property
    def markdown(self) -> str:
        """The table in Markdown."""
        return as_markdown(self.table).strip()


def figure(found: Doses) -> Figure:
    """Draw the first measure: points across, an interval per arm.

    An end at zero, which a logarithmic axis cannot show, is an arrow.
    """
    rows = [row for row in found["rows"] if row["measure"] == SHOWN[0]]
    limits = limits_of(_interval(row) for row in rows)
    points = list(dict.fromkeys(tuple(row["levels"].values()) for row in rows))
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    drawn = new_figure(3.4)
    axis = drawn.subplots()
    for rank, arm in enumerate(arms):
        shade = _COLOURS[rank % len(_COLOURS)]
        for row in (it for it in rows if it["arm"] == arm):
            draw_interval(
                axis,
                _interval(row),
                points.index(tuple(row["levels"].values())) + (rank - 1) * 0.2,
                limits=limits,
                shade=shade,
                symbol="o",
                upright=True,
            )
        axis.plot([], [], "o", color=shade, ms=4.5, label=arm)
    log_scale(axis, "y")
    axis.set_ylabel(rows[0]["heading"])
    axis.set_xticks(range(len(points)), ["\n".join(it) for it in points], fontsize=7.5)
    axis.set_xlabel(", ".join(rows[0]["levels"]), color=MUTED)
    plain_log_axis(axis, "y")
    drawn.legend(loc="outside upper left", ncols=len(arms))
    return drawn


def _interval(row: DoseRow) -> Interval:
    return Interval(row["value"], row["low"], row["high"])


def written_doses(found: Doses) -> str:
    """Return the content of the file as JSON."""
    return json_text(found)
