"""The part of a page that tells of an election: answer, panel, tables, meanings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.worlds import IncidentWorlds
from spark_analysis.telling.report.point_parts import plain_table
from spark_analysis.telling.report.svg import inline
from spark_analysis.telling.sentences.incident_sentences import CAPTION, incident_lead
from spark_analysis.telling.sentences.incident_world_sentences import (
    election_sentences,
)
from spark_analysis.telling.tables.incident_table import (
    incident_summary,
    incident_table,
)
from spark_analysis.telling.tables.incident_worlds_table import (
    incident_worlds_tables,
)

TITLE: Final = "One incident, arm by arm"


def incident_part(incident: Incident, svg: str) -> str:
    """Return the section; ``svg`` is its saved panel."""
    return "\n".join(
        [
            *_beginning(incident_lead(incident), svg),
            plain_table(incident_summary(incident)),
            "<details><summary>Every measure with intervals</summary>"
            + plain_table(incident_table(incident))
            + "</details>",
            _meanings(incident),
        ]
    )


def incident_worlds_part(worlds: IncidentWorlds, svg: str) -> str:
    """Return the section of several worlds; ``svg`` is their saved panel."""
    summary, *others = incident_worlds_tables(worlds)
    return "\n".join(
        [
            *_beginning(election_sentences(worlds), svg),
            plain_table(summary),
            *map(plain_table, others),
            _meanings(worlds.witness),
        ]
    )


def _beginning(said: Sequence[str], svg: str) -> list[str]:
    first, *others = said
    return [
        "<h2 id='incident'>The election</h2>",
        f"<p class='lead'>{escape(first)}</p>",
        "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in others) + "</ul>",
        f"<figure id='figure-incident'><h3>{TITLE}</h3>\n"
        f"{inline(svg, 'incident', TITLE)}\n"
        f"<figcaption>{escape(CAPTION)}</figcaption></figure>",
    ]


def _meanings(incident: Incident) -> str:
    meanings = "".join(
        f"<dt>{escape(it.label)}</dt><dd>{escape(it.meaning)}</dd>"
        for it in incident.measures
    )
    return (
        "<details><summary>What the measures mean</summary>"
        f"<dl>{meanings}</dl></details>"
    )
