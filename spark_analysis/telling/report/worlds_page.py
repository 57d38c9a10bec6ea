"""The page of several worlds: the answer, where they agree, then each by itself."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Worlds
from spark_analysis.telling.report.document import document
from spark_analysis.telling.report.point_parts import plain_table
from spark_analysis.telling.report.svg import inline
from spark_analysis.telling.sentences.agreement_sentences import agreement_sentences
from spark_analysis.telling.sentences.answer_of_worlds import worlds_lead
from spark_analysis.telling.sentences.sweep_sentences import study_cautions
from spark_analysis.telling.sentences.world_sentences import (
    worlds_found,
    worlds_notes,
)
from spark_analysis.telling.tables.agreement_table import agreement_tables
from spark_analysis.telling.tables.worlds_table import headline_table, worlds_tables


def worlds_page(worlds: Worlds, figures: Mapping[str, str], first: str = "") -> str:
    """Return the whole HTML file; ``figures`` are SVGs by the world that they show.

    ``first`` is a part that is told before all others.
    """
    manifest = worlds.witness.manifest
    title = escape(manifest.title)
    names = [study.manifest.world for study in worlds.studies]
    links = "".join(f"<a href='{name}/index.html'>{name}</a>" for name in names)
    election = "<a href='#incident'>The election</a>" if first else ""
    said = " ".join(escape(text) for text in worlds_lead(worlds))
    body = [
        f"<header><p class='meta'>{escape(manifest.name)} · {' and '.join(names)} "
        f"world · {manifest.created[:10]}</p><h1>{title}</h1>",
        f"<nav>{election}<a href='#agreement'>Agreement</a>"
        "<a href='#worlds'>Side by side</a>"
        f"{links}</nav></header><main>",
        _warnings(worlds.witness),
        first,
        f"<p class='lead'>{said}</p>",
        *map(_warnings, worlds.others),
        *(f"<p class='note'>{escape(text)}</p>" for text in worlds_notes(worlds)),
        "<h2 id='agreement'>Where they agree</h2>",
        *(f"<p>{escape(text)}</p>" for text in worlds_found(worlds)),
        *(f"<p>{escape(text)}</p>" for text in agreement_sentences(worlds)),
        *map(plain_table, agreement_tables(worlds)),
        "<h2 id='worlds'>Side by side</h2>",
    ]
    for study in worlds.others:
        world = study.manifest.world
        body.append(plain_table(headline_table(worlds, world)))
        label = f"Ratios in the {names[0]} and the {world} world"
        drawn = inline(figures[world], f"worlds-{world}", label)
        body.append(f"<figure>{drawn}</figure>")
    body += ["<h2 id='all'>Every metric</h2>", *map(plain_table, worlds_tables(worlds))]
    body.append(
        "<h2 id='each'>Each world by itself</h2><p>"
        + ", ".join(
            f"<a href='{name}/index.html'>the {name} world</a>" for name in names
        )
        + ": its own answer, figures, verdicts in words, runs and method.</p></main>"
    )
    return document(title, body)


def _warnings(study: Study) -> str:
    world = study.manifest.world
    return "".join(
        f"<p class='warning'>{escape(f'{world}: {text}')}</p>"
        for text in study_cautions(study)
    )
