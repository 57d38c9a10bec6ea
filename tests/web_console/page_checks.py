"""Faults of a page in a browser: layout, contrast, focus.

`page_checks.js` reads boxes and colours. The bounds are those of WCAG 2.2, level AA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page

# Success criteria 1.4.3 (text; large text) and 1.4.11 (edges of controls, graphics).
CONTRASTS = {"text": 4.5, "large": 3.0, "graphic": 3.0}
# Minimum side of a control in pixels: success criterion 2.5.8.
SIDE_PX = 24
# Words up to this length must not be broken.
WORD_LETTERS = 12
CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea"
_SCRIPT = (Path(__file__).parent / "page_checks.js").read_text(encoding="utf-8")


def _call(page: Page, function: str, *arguments: object) -> Any:
    # Text may be found before its style sheet has loaded.
    page.wait_for_load_state()
    return page.evaluate(f"given => ({_SCRIPT}).{function}(given)", arguments)


# ---- layout and contrast ------------------------------------------------------------


def layout_faults(page: Page) -> list[str]:
    """Return overlaps, broken words, and elements beyond the page's edge."""
    return list(_call(page, "layout", CONTROLS, SIDE_PX, WORD_LETTERS))


def contrast_faults(page: Page) -> list[str]:
    """Return pairs of colours with too little contrast."""
    return [
        f"{row['kind']} {row['sample']!r}: {row['colour']} on {row['back']}"
        for row in _call(page, "colours", CONTROLS)
        if contrast(row["colour"], row["back"]) < CONTRASTS[row["kind"]]
    ]


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast ratio of two opaque colours in the browser's notation."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """Return WCAG's relative luminance of an opaque colour."""
    found = re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour)
    assert found is not None, colour
    red, green, blue = (
        it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4
        for it in (int(part) / 255 for part in found.groups())
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# ---- keyboard -----------------------------------------------------------------------


class Focus(NamedTuple):
    """The focused element; ``index`` is its position in the document."""

    index: int
    is_control: bool
    text: str
    name: str
    top: float
    bottom: float
    left: float
    is_in_view: bool
    has_outline: bool
    outline: str
    back: str

    def faults(self) -> list[str]:
        """Return the reasons why the focus is not visible."""
        found = []
        if not self.has_outline:
            found.append(f"no outline: {self}")
        elif contrast(self.outline, self.back) < CONTRASTS["graphic"]:
            found.append(f"faint outline: {self}")
        if not self.is_in_view:
            found.append(f"out of view: {self}")
        return found

    def is_read_before(self, other: Focus) -> bool:
        """Return whether the element is above the other, or left of it on one line."""
        if other.bottom <= self.top + 1:
            return False
        return other.top >= self.bottom - 1 or other.left >= self.left


def tabbed(page: Page) -> Iterator[Focus]:
    """Press Tab repeatedly, and yield each focused element to the end of the page."""
    seen: set[int] = set()
    while True:
        page.keyboard.press("Tab")
        found = _call(page, "focused", CONTROLS)
        if found is None or found["index"] in seen:
            return
        seen.add(found["index"])
        yield Focus(**found)


def tab_to(page: Page, *, text: str = "", name: str = "") -> None:
    """Press Tab until an element of this text or name has the focus."""
    passed = []
    for it in tabbed(page):
        assert it.faults() == []
        if (text, name) in ((it.text, ""), ("", it.name)):
            return
        passed.append(it.text or it.name)
    raise AssertionError(f"Tab leads to {passed}, not to {text}{name}")
