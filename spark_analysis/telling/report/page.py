"""The page: first the answer, then numbers and figures, then how they were found."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Manifest
from spark_analysis.statistics.sign_flip import smallest_p
from spark_analysis.telling.figures.listing import plots
from spark_analysis.telling.report.document import document
from spark_analysis.telling.report.method import method
from spark_analysis.telling.report.point_parts import (
    again_part,
    cards,
    comparison_part,
    environment_part,
    runs_part,
    sentences_part,
    warnings_part,
)
from spark_analysis.telling.report.sweep_parts import (
    attribution_part,
    figure_part,
    pairs_part,
    sweep_body,
)
from spark_analysis.telling.sentences.numbers import counted, digits, p_value, percent

_HERE: Final = Path(__file__).parent
_SECTIONS: Final = {
    "incident": "The election",
    "attribution": "Where it comes from",
    "pairs": "Pairs",
    "numbers": "Numbers",
    "figures": "Figures",
    "points": "Points",
    "verdicts": "Verdicts",
    "again": "A/A",
    "runs": "Runs",
}
_ALWAYS: Final = {
    "reading": "How to read this",
    "method": "Method",
    "environment": "Environment",
    "glossary": "Glossary",
}
_OVER_POINTS: Final = (
    "Where arms are compared over many points or as pairs, q-values keep the share of "
    "false entries among all entries found (Benjamini–Hochberg, over the points and "
    "classes of a pair and metric), and the intervals of what was found are widened to "
    "match (Benjamini–Yekutieli)."
)


def page(study: Study, svgs: Mapping[str, str], first: str = "") -> str:
    """Return the whole HTML file; ``svgs`` are the saved figures by path.

    ``first`` is a part that comes before all that is told of latencies.
    """
    manifest = study.manifest
    title = escape(manifest.title)
    main = first + (sweep_body(study, svgs) if study.swept else _body(study, svgs))
    shown = {key: name for key, name in _SECTIONS.items() if f"id='{key}'" in main}
    body = [
        f"<header><p class='meta'>{_meta(study)}</p><h1>{title}</h1>",
        "<nav>",
        *(f"<a href='#{key}'>{name}</a>" for key, name in (shown | _ALWAYS).items()),
        "</nav></header><main>",
        warnings_part(study),
        main,
        _prose(study),
        "<h2 id='environment'>The environment</h2>",
        environment_part(manifest),
        (_HERE / "glossary.html").read_text(encoding="utf-8"),
        "</main>",
        _footer(manifest),
    ]
    return document(title, body)


def _body(study: Study, svgs: Mapping[str, str]) -> str:
    """Return the main part where there is one point."""
    (comparison,) = study.comparisons
    listed = plots(comparison)
    return "\n".join(
        [
            cards(comparison),
            attribution_part(study),
            pairs_part(study),
            "<h2 id='numbers'>The numbers</h2>",
            comparison_part(comparison),
            "<h2 id='figures'>The figures</h2>",
            *(figure_part(name, listed[name], svg) for name, svg in svgs.items()),
            "<h2 id='verdicts'>Every verdict in words</h2>",
            sentences_part(comparison),
            "<h2 id='again'>The A/A check</h2>",
            again_part(comparison),
            "<h2 id='runs'>The runs</h2>",
            runs_part(comparison),
        ]
    )


def _meta(study: Study) -> str:
    manifest = study.manifest
    requests = sum(run.counts["sent"] for run in manifest.runs_compared)
    points = f"{counted(len(study.comparisons), 'point')} × " if study.swept else ""
    blocks = sorted({len(of.manifest.blocks) for of in study.comparisons})
    least = f"{blocks[0]}–" if len(blocks) > 1 else ""
    arms = counted(len(manifest.arms_compared), "arm")
    sent = f"{requests:,} requests".replace(",", "\u202f")
    return escape(
        f"{manifest.name} · {manifest.world} world · {points}{least}"
        f"{counted(blocks[-1], 'block')} × {arms} · {sent} · {manifest.created[:10]}"
    )


def _prose(study: Study) -> str:
    manifest, options = study.manifest, study.manifest.options
    blocks = min(len(comparison.manifest.blocks) for comparison in study.comparisons)
    floor = smallest_p(blocks)
    unreachable = (
        f", which is above {digits(options.alpha)}: no difference could be found at all"
        if floor > options.alpha
        else ""
    )
    windows = dict.fromkeys(point.window_ns for point in manifest.points)
    bounds = [f"{start / 1e9:g} and {end / 1e9:g}" for start, end in windows]
    text = Template((_HERE / "prose.html").read_text(encoding="utf-8"))
    return text.substitute(
        one_in=digits(1 / options.alpha).removesuffix(".0"),
        margin_latency=percent(options.margin_latency),
        margin_goodput=percent(options.margin_goodput),
        blocks=blocks,
        alpha=percent(options.alpha),
        smallest_p=p_value(floor),
        unreachable=unreachable,
        shown=f"{options.exceedances_shown:g}",
        headline_at=f"{options.exceedances_headline:g}",
        windows=", or ".join(bounds),
        over_points=_OVER_POINTS if study.pairs else "",
        **method(manifest, blocks),
    )


def _footer(manifest: Manifest) -> str:
    return (
        "<footer class='meta'>Made by Doorkeeper from recorded requests alone: "
        "<code>doorkeeper analyze</code> on the same directory gives the same bytes. "
        f"Seed {manifest.seed}, configuration "
        f"<code>{escape(manifest.config_sha256[:12])}</code>, commit "
        f"<code>{escape(str(manifest.code.get('commit', 'unknown'))[:12])}</code>. "
        "The tables and figures lie beside this page as CSV, Markdown, LaTeX, SVG and "
        "PNG.</footer>"
    )
