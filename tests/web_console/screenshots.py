"""Screenshots of pages: ``python -m tests.web_console.screenshots DIRECTORY``.

`make screenshots` writes those of docs/console.md, light and dark, with Chromium.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Route

from doorkeeper.web_console.rendering import TEMPLATES
from tests.web_console.browser import SCHEMES, chromium
from tests.web_console.demo_cluster import recorded

# Heights of the pictures, in pixels.
PICTURES: Final = {
    "cluster": 660,
    "topics": 860,
    "group": 1_000,
    "requests": 1_180,
    "reassignment": 1_090,
}
WIDTH_PX: Final = 1_000
_COLOURS: Final = 64
_ADDRESS: Final = "http://console.example"


def main(directory: Path) -> None:
    """Write all screenshots."""
    pages = recorded()
    style = (TEMPLATES / "console.css").read_text(encoding="utf-8")

    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        kind = "text/css" if name.endswith(".css") else "text/html"
        route.fulfill(body=pages.get(name, style), content_type=kind)

    directory.mkdir(exist_ok=True)
    with chromium() as browser:
        for scheme in SCHEMES:
            with browser.new_context(color_scheme=scheme) as context:
                page = context.new_page()
                page.route("**/*", answer)
                for name, height in PICTURES.items():
                    page.set_viewport_size({"width": WIDTH_PX, "height": height})
                    page.goto(f"{_ADDRESS}/{name}")
                    picture = Image.open(io.BytesIO(page.screenshot()))
                    small = picture.convert("RGB").quantize(_COLOURS, dither=0)
                    small.save(directory / f"{name}-{scheme}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
