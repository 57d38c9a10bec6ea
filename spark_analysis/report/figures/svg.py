"""SVG figures inlined in an HTML page: unique ids, ink in the page's colour."""

from __future__ import annotations

import re

from spark_analysis.report.figures.style import INK


def inline(svg: str, name: str, label: str) -> str:
    """Return an ``<svg>`` element for the page.

    Ids are prefixed with the figure's name, because all figures share one document. Ink
    becomes ``currentColor`` and type the page's, so that both follow a dark page.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"\bid=\"", f'id="{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r"href=\"#", f'href="#{name}-', body)
    body = body.replace(INK, "currentColor").replace("'DejaVu Sans'", "var(--sans)")
    head, rest = body.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{label}">{rest}'
