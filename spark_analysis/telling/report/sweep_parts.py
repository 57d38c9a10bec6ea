"""What the page says of factors, pairs and points: a summary first, points folded."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.study import Study
from spark_analysis.telling.figures.listing import Plot, StudyPlot, plots, study_plots
from spark_analysis.telling.report.point_parts import (
    again_part,
    comparison_part,
    plain_table,
    runs_part,
    sentences_part,
)
from spark_analysis.telling.report.svg import inline
from spark_analysis.telling.sentences.sweep_sentences import (
    pair_sentences,
    study_again,
    study_attribution,
)
from spark_analysis.telling.tables.attribution_table import attribution_table
from spark_analysis.telling.tables.sweep_tables import levels_table, pairs_table


def sweep_body(study: Study, svgs: Mapping[str, str]) -> str:
    """Return the main part of a page about many points."""
    listed = study_plots(study)
    first, *others = study.class_names
    lead = " ".join(pair_sentences(study, [first]))
    rest = pair_sentences(study, others)
    return "\n".join(
        [
            f"<p class='lead'>{escape(lead)}</p>",
            _list(rest),
            f"<p class='note'>{escape(study_again(study))}</p>",
            attribution_part(study),
            "<h2 id='figures'>Over all points</h2>" if listed else "",
            *(figure_part(name, plot, svgs[name]) for name, plot in listed.items()),
            "<h2 id='numbers'>By level</h2>",
            plain_table(levels_table(study)),
            _folded("Every pair at every point", plain_table(pairs_table(study))),
            "<h2 id='points'>Point by point</h2>",
            *(_point(study, index, svgs) for index in range(len(study.comparisons))),
        ]
    )


def _point(study: Study, index: int, svgs: Mapping[str, str]) -> str:
    """Return one point, folded."""
    comparison, folder = study.comparisons[index], study.folder(index)
    figures = [
        figure_part(f"{folder}/{name}", plot, svgs[f"{folder}/{name}"])
        for name, plot in plots(comparison).items()
        if f"{folder}/{name}" in svgs
    ]
    inside = "\n".join(
        [
            comparison_part(comparison),
            *figures,
            _folded("Every verdict in words", sentences_part(comparison)),
            _folded("Every effect", _effects(comparison)),
            _folded("The A/A check", again_part(comparison)),
            _folded("The runs", runs_part(comparison)),
        ]
    )
    return _folded(comparison.manifest.point.name, inside)


def attribution_part(study: Study) -> str:
    """Return where effects come from, in words and as a table; nothing if no design."""
    said = study_attribution(study)
    if not said:
        return ""
    tables = "" if study.swept else _effects(study.comparisons[0])
    items = "".join(
        f"<li>{escape(plain)}<br><span class='meta'>{escape(detail)}</span></li>"
        for plain, detail in said
    )
    return (
        "<h2 id='attribution'>Where the effect comes from</h2>"
        + f"<ul>{items}</ul>"
        + _folded("Every effect", tables)
    )


def _effects(comparison: Comparison) -> str:
    if not comparison.attributions:
        return ""
    return plain_table(attribution_table(comparison))


def pairs_part(study: Study) -> str:
    """Return the pairs of the only point, in words and as a table."""
    if not study.pairs:
        return ""
    return (
        "<h2 id='pairs'>Arms against each other</h2>"
        + _list(pair_sentences(study, study.class_names))
        + _folded("Every pair", plain_table(pairs_table(study)))
    )


def figure_part(name: str, plot: Plot | StudyPlot, svg: str) -> str:
    """Return one figure with its caption; ``name`` is its path."""
    key = name.replace("/", "-")
    return (
        f"<figure id='figure-{key}'><h3>{escape(plot.title)}</h3>\n"
        f"{inline(svg, key, escape(plot.title))}\n"
        f"<figcaption>{escape(plot.caption)}</figcaption></figure>"
    )


def _list(said: tuple[str, ...]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    return f"<ul>{items}</ul>" if items else ""


def _folded(summary: str, inside: str) -> str:
    if not inside:
        return ""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"
