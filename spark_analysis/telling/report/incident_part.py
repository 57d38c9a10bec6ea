"""The part of the page that tells of an election: answer, panel, table, meanings."""

from __future__ import annotations

from html import escape
from typing import Final

from spark_analysis.incidents.incident import Incident
from spark_analysis.telling.report.point_parts import plain_table
from spark_analysis.telling.report.svg import inline
from spark_analysis.telling.sentences.incident_sentences import CAPTION, incident_lead
from spark_analysis.telling.tables.incident_table import (
    incident_summary,
    incident_table,
)

TITLE: Final = "One incident, arm by arm"


def incident_part(incident: Incident, svg: str) -> str:
    """Return the section; ``svg`` is its saved panel."""
    first, *others = incident_lead(incident)
    meanings = "".join(
        f"<dt>{escape(it.label)}</dt><dd>{escape(it.meaning)}</dd>"
        for it in incident.measures
    )
    return "\n".join(
        [
            "<h2 id='incident'>The election</h2>",
            f"<p class='lead'>{escape(first)}</p>",
            "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in others) + "</ul>",
            f"<figure id='figure-incident'><h3>{TITLE}</h3>\n"
            f"{inline(svg, 'incident', TITLE)}\n"
            f"<figcaption>{escape(CAPTION)}</figcaption></figure>",
            plain_table(incident_summary(incident)),
            "<details><summary>Every measure with intervals</summary>"
            + plain_table(incident_table(incident))
            + "</details>",
            "<details><summary>What the measures mean</summary>"
            f"<dl>{meanings}</dl></details>",
        ]
    )
