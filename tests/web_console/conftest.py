"""Consoles in one process: what is the same for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from doorkeeper.web_console import app


@pytest.fixture(autouse=True, scope="session")
def _templates_are_compiled_once() -> Iterator[None]:
    """Compile each template once, not for each of hundreds of consoles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "environment", cache(app.environment))
        yield
