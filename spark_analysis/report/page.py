"""The page: first the answer, then numbers and figures, then how they were found."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from spark_analysis.comparison import Comparison
from spark_analysis.figures.listing import Plot
from spark_analysis.report.parts import (
    again_part,
    cards,
    comparison_part,
    environment_part,
    runs_part,
    sentences_part,
    warnings_part,
)
from spark_analysis.report.svg import inline
from spark_analysis.statistics.sign_flip import smallest_p
from spark_analysis.wording import digits, p_value, percent

_HERE: Final = Path(__file__).parent
_SECTIONS: Final = {
    "numbers": "Numbers",
    "figures": "Figures",
    "verdicts": "Verdicts",
    "reading": "How to read this",
    "method": "Method",
    "again": "A/A",
    "runs": "Runs",
    "environment": "Environment",
    "glossary": "Glossary",
}


def page(
    comparison: Comparison, plots: Mapping[str, Plot], svgs: Mapping[str, str]
) -> str:
    """Return the whole HTML file; ``svgs`` are the saved figures by name."""
    manifest = comparison.manifest
    title = escape(manifest.title)
    body = [
        f"<header><p class='meta'>{_meta(comparison)}</p><h1>{title}</h1>",
        "<nav>",
        *(f"<a href='#{key}'>{name}</a>" for key, name in _SECTIONS.items()),
        "</nav></header><main>",
        warnings_part(comparison),
        cards(comparison),
        "<h2 id='numbers'>The numbers</h2>",
        comparison_part(comparison),
        "<h2 id='figures'>The figures</h2>",
        *(_figure(name, plots[name], svg) for name, svg in svgs.items()),
        "<h2 id='verdicts'>Every verdict in words</h2>",
        sentences_part(comparison),
        _prose(comparison),
        "<h2 id='again'>The A/A check</h2>",
        again_part(comparison),
        "<h2 id='runs'>The runs</h2>",
        runs_part(comparison),
        "<h2 id='environment'>The environment</h2>",
        environment_part(manifest),
        (_HERE / "glossary.html").read_text(encoding="utf-8"),
        "</main>",
        _footer(comparison),
    ]
    style = (_HERE / "report.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _meta(comparison: Comparison) -> str:
    manifest = comparison.manifest
    requests = sum(run.counts["sent"] for run in manifest.runs_compared)
    return escape(
        f"{manifest.name} · {manifest.world} world · {len(manifest.blocks)} blocks × "
        f"{len(comparison.arm_names)} arms · {requests:,} requests".replace(
            ",", "\u202f"
        )
        + f" · {manifest.created[:10]}"
    )


def _figure(name: str, plot: Plot, svg: str) -> str:
    return (
        f"<figure id='figure-{name}'><h3>{escape(plot.title)}</h3>\n"
        f"{inline(svg, name, escape(plot.title))}\n"
        f"<figcaption>{escape(plot.caption)}</figcaption></figure>"
    )


def _prose(comparison: Comparison) -> str:
    manifest, options = comparison.manifest, comparison.manifest.options
    blocks = len(manifest.blocks)
    floor = smallest_p(blocks)
    unreachable = (
        f", which is above {digits(options.alpha)}: no difference could be found at all"
        if floor > options.alpha
        else ""
    )
    start, end = (edge / 1e9 for edge in manifest.window_ns)
    text = Template((_HERE / "prose.html").read_text(encoding="utf-8"))
    return text.substitute(
        one_in=digits(1 / options.alpha).removesuffix(".0"),
        margin_latency=percent(options.margin_latency),
        margin_goodput=percent(options.margin_goodput),
        blocks=blocks,
        level=percent(options.confidence),
        baseline=escape(manifest.baseline),
        alpha=percent(options.alpha),
        smallest_p=p_value(floor),
        unreachable=unreachable,
        shown=f"{options.exceedances_shown:g}",
        headline_at=f"{options.exceedances_headline:g}",
        window_start=f"{start:g}",
        window_end=f"{end:g}",
    )


def _footer(comparison: Comparison) -> str:
    manifest = comparison.manifest
    return (
        "<footer class='meta'>Made by Doorkeeper from recorded requests alone: "
        "<code>doorkeeper analyze</code> on the same directory gives the same bytes. "
        f"Seed {manifest.seed}, configuration "
        f"<code>{escape(manifest.config_sha256[:12])}</code>, commit "
        f"<code>{escape(str(manifest.code.get('commit', 'unknown'))[:12])}</code>. "
        "The tables and figures lie beside this page as CSV, Markdown, LaTeX, SVG and "
        "PNG.</footer>"
    )
