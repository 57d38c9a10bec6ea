"""Experiments in one process: what is the same for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from experiments.records import environment


@pytest.fixture(autouse=True, scope="session")
def _git_is_asked_once() -> Iterator[None]:
    """Ask git for the commit once, not for each of hundreds of small runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "_git", cache(environment._git))
        yield
