"""An HTML file that needs no network: a title, the report's style, and a body."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_STYLE = Path(__file__).parent / "report.css"


def document(title: str, body: Sequence[str]) -> str:
    """Return the whole file; ``title`` and the lines of ``body`` are HTML already."""
    style = _STYLE.read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
