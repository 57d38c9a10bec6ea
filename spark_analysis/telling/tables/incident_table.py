"""An election under load as a table: every measure of every arm, and its verdict."""

from __future__ import annotations

from spark_analysis.incidents.incident import Incident
from spark_analysis.telling.sentences.numbers import counted, percent
from spark_analysis.telling.tables.table import (
    Column,
    Table,
    ends,
    number,
    p_or_none,
    share_ends,
)


def incident_table(incident: Incident) -> Table:
    """One row per measure and arm."""
    options = incident.manifest.options
    level = percent(options.confidence)
    blocks = len(incident.manifest.blocks)
    return Table(
        name="incident",
        caption=(
            f"The election: means over {counted(blocks, 'incident')} with {level} "
            "intervals, each by itself; a difference is the mean over pairs that met "
            "the same requests; p is adjusted for all arms of a measure."
        ),
        columns=(
            Column(name="measure", heading="measure"),
            Column(name="arm", heading="arm"),
            Column(name="mean", heading="mean", write=number),
            Column(name="interval", heading=level, write=ends),
            Column(name="difference", heading="difference", write=number),
            Column(name="difference_interval", heading=level, write=share_ends),
            Column(name="p", heading="p", write=p_or_none),
            Column(name="verdict", heading="verdict"),
        ),
        rows=tuple(
            (
                cell.measure.heading,
                cell.arm,
                cell.estimate.value,
                cell.estimate,
                None if cell.difference is None else cell.difference.value,
                cell.difference,
                cell.p,
                cell.word,
            )
            for cell in incident.cells
        ),
    )


def incident_summary(incident: Incident) -> Table:
    """One row per arm, one column per measure: means, and marks where they differ."""
    arms = dict.fromkeys(cell.arm for cell in incident.cells)
    incidents = counted(len(incident.manifest.blocks), "incident")
    return Table(
        name="incident-summary",
        caption=(
            f"The election at a glance: means over {incidents}; lower is better in "
            "every column. By the paired tests of all arms in a measure at once, ▼ is "
            f"better than {incident.manifest.baseline}, ▲ is worse."
        ),
        columns=(
            Column(name="arm", heading="arm"),
            *(
                Column(name=it.name, heading=it.heading, write=_plain)
                for it in incident.measures
            ),
        ),
        rows=tuple(
            (arm, *(_marked(incident, arm, it.name) for it in incident.measures))
            for arm in arms
        ),
    )


def _plain(text: str) -> str:
    return text


def _marked(incident: Incident, arm: str, measure: str) -> str:
    cell = incident.cell(arm, measure)
    text = number(cell.estimate.value)
    marks = {"better": " ▼", "worse": " ▲"}
    return text + marks.get(cell.word, "")
