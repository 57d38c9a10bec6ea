"""The report's page: one HTML file without network access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from markupsafe import Markup

from spark_analysis.report.content.rendering import page as render
from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.content.tables import Table
from spark_analysis.report.figures.listing import FIRST, Plot
from spark_analysis.report.figures.svg import inline

_STYLE: Final = Path(__file__).parent / "templates" / "report.css"
# Tables with more rows are files only.
_ROWS_MAX: Final = 400
# Sections below the first screen: id, title, tables.
_SECTIONS: Final = (
    ("metrics", "All metrics", ("comparison", "measures", "definitions")),
    ("worlds", "Agreement of worlds", ("agreement", "theory")),
    ("incident", "Every measure of the election", ("incident",)),
    ("distributions", "Latency distributions", ()),
    ("phases", "Time by phase", ("phases",)),
    ("queue", "Request queue over time", ()),
    ("effects", "Effects of the factors", ("effects",)),
    ("pairs", "Arms against each other", ("pairs", "levels")),
    ("noise", "Noise floor (A/A)", ("noise",)),
    ("cpu", "CPU of identical requests", ("paired-cpu",)),
    ("runs", "Runs and discarded rounds", ("runs",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A figure as shown by the template."""

    name: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A collapsible part of the page."""

    id: str
    title: str
    tables: tuple[Table, ...]
    plots: tuple[_Drawn, ...]


def page(
    found: Results,
    tables: Mapping[str, Table],
    svgs: Mapping[str, str],
    plots: Mapping[str, Plot],
) -> str:
    """Return the HTML; ``svgs`` are the saved figures of ``plots`` by name."""
    drawn: dict[str, list[_Drawn]] = {}
    for name, svg in svgs.items():
        plot = plots[name]
        label = escape(plot.title, quote=True)
        shown = _Drawn(
            name=name,
            title=plot.title,
            caption=plot.caption,
            svg=inline(svg, name, label),
        )
        drawn.setdefault(plot.section, []).append(shown)
    sections = [
        _Section(
            id=key,
            title=title,
            tables=tuple(tables[name] for name in names if _shown(tables, name)),
            plots=tuple(drawn.get(key, ())),
        )
        for key, title, names in _SECTIONS
    ]
    return render(
        "index.html.j2",
        found=found,
        summary=Summary(found),
        plots={FIRST: drawn.get(FIRST, [])},
        sections=sections,
        style=Markup(_STYLE.read_text(encoding="utf-8")),
    )


def _shown(tables: Mapping[str, Table], name: str) -> bool:
    return name in tables and len(tables[name].rows) <= _ROWS_MAX
