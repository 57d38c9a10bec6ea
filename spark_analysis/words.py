"""What a comparison says, as data: for the paper, and for whoever quotes a report."""

from __future__ import annotations

from typing import Any

from spark_analysis.cautions import cautions
from spark_analysis.comparison import Comparison
from spark_analysis.figures.listing import plots
from spark_analysis.lead import lead
from spark_analysis.sentences import again_sentence, headline, sentence, story
from spark_analysis.tables import comparison_table


def words(comparison: Comparison) -> dict[str, Any]:
    """Return what ``words.json`` holds: sentences, captions, and the main table."""
    table = comparison_table(comparison)
    arms = len(comparison.arm_names)
    return {
        "schema": 1,
        "headline": comparison.headline.name,
        "lead": list(lead(comparison)),
        "stories": [
            headline(comparison, story(comparison, arm)) for arm in comparison.rivals
        ],
        "again": again_sentence(comparison),
        "cautions": list(cautions(comparison)),
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
