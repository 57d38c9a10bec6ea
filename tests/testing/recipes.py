"""The recipes of docs/testing.md: blocks of Python, each below its title."""

import re
from pathlib import Path
from typing import Final

_PAGE = Path(__file__).parents[2] / "docs/testing.md"
_BLOCK = re.compile(r"^([^\n]+)\n+```python\n(.*?)^```", re.M | re.S)
RECIPES: Final[dict[str, str]] = dict(_BLOCK.findall(_PAGE.read_text()))
# Needs older releases of other clients, hence a separate environment.
QUIX_STREAMS: Final = "Quix Streams:"
SPARK: Final = next(title for title in RECIPES if title.startswith("Spark"))
