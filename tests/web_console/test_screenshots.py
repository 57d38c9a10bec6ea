"""Screenshots of docs/console.md: all present, light and dark, and small."""

import re
from pathlib import Path

from tests.web_console.browser import SCHEMES
from tests.web_console.screenshots import PICTURES

DOCS = Path(__file__).parents[2] / "docs"
BYTES_MAX = 64 << 10


def test_every_picture_is_there_light_and_dark_and_small() -> None:
    expected = {f"console/{name}-{it}.png" for name in PICTURES for it in SCHEMES}
    page = (DOCS / "console.md").read_text()
    assert {*re.findall(r'(?:src|srcset)="([^"]+)"', page)} == expected
    assert {f"console/{it.name}" for it in (DOCS / "console").iterdir()} == expected
    for name in expected:
        data = (DOCS / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) <= BYTES_MAX
