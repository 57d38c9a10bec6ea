"""What a comparison says, as data: for the paper, and for whoever quotes a report."""

from __future__ import annotations

from typing import Any

from spark_analysis.incidents.incident import Incident
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Worlds
from spark_analysis.telling.figures.listing import plots, study_plots
from spark_analysis.telling.sentences.agreement_sentences import agreement_sentences
from spark_analysis.telling.sentences.answer_of_worlds import worlds_lead
from spark_analysis.telling.sentences.incident_sentences import CAPTION, incident_lead
from spark_analysis.telling.sentences.lead import lead
from spark_analysis.telling.sentences.sweep_sentences import (
    pair_sentences,
    study_again,
    study_attribution,
    study_cautions,
    study_lead,
)
from spark_analysis.telling.sentences.verdict_sentences import headline, sentence, story
from spark_analysis.telling.sentences.world_sentences import (
    worlds_found,
    worlds_notes,
)
from spark_analysis.telling.tables.incident_table import incident_summary
from spark_analysis.telling.tables.point_tables import comparison_table


def words(study: Study) -> dict[str, Any]:
    """Return what ``words.json`` holds: sentences, captions, and the main table.

    The paper is about one point; of a sweep there is what is said over all points.
    """
    whole = {
        "schema": 1,
        "headline": study.headline.name,
        "again": study_again(study),
        "cautions": list(study_cautions(study)),
        "attribution": [said._asdict() for said in study_attribution(study)],
        "pairs": list(pair_sentences(study, study.class_names)),
    }
    if study.swept:
        captions = {name: plot.caption for name, plot in study_plots(study).items()}
        return {**whole, "lead": list(study_lead(study)), "captions": captions}
    return {**whole, **_of_point(study.comparisons[0])}


def words_of_incident(incident: Incident) -> dict[str, Any]:
    """Return what ``words.json`` says of an election."""
    table = incident_summary(incident)
    return {
        "lead": incident_lead(incident),
        "caption": CAPTION,
        "table": {
            "caption": table.caption,
            "headings": [column.heading for column in table.columns],
            "numeric": [column.numeric for column in table.columns],
            "rows": table.written(),
            "groups": [],
        },
    }


def words_of_worlds(worlds: Worlds) -> dict[str, Any]:
    """Return what ``words.json`` holds of several worlds: their answer, and each's.

    ``directories`` names the folder of each world's recordings, the witness's first.
    """
    return {
        "schema": 1,
        "directories": {
            study.manifest.world: study.manifest.directory.name
            for study in worlds.studies
        },
        "lead": list(worlds_lead(worlds)),
        "cautions": [
            f"{study.manifest.world}: {text}"
            for study in worlds.studies
            for text in study_cautions(study)
        ],
        "found": list(worlds_found(worlds)),
        "agreement": list(agreement_sentences(worlds)),
        "notes": list(worlds_notes(worlds)),
        "worlds": {study.manifest.world: words(study) for study in worlds.studies},
    }


def _of_point(comparison: Comparison) -> dict[str, Any]:
    table = comparison_table(comparison)
    arms = len(comparison.arm_names)
    return {
        "headline": comparison.headline.name,
        "lead": list(lead(comparison)),
        "stories": [
            headline(comparison, story(comparison, arm)) for arm in comparison.rivals
        ],
        "sentences": [
            {
                "class": cell.class_name,
                "arm": cell.arm,
                "metric": cell.metric.name,
                "sentence": sentence(comparison, cell),
            }
            for cell in comparison.cells
        ],
        "captions": {name: plot.caption for name, plot in plots(comparison).items()},
        "main": {
            "caption": table.caption,
            "headings": [column.heading for column in table.columns],
            "numeric": [column.numeric for column in table.columns],
            "rows": table.written(),
            "groups": list(range(arms, len(table.rows), arms)),
        },
    }
