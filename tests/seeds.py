"""Seeds of tests that draw: some in `make test`, the others in `make test-slow`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, count: int) -> list[Any]:
    """Return the parameters 0 to ``count`` - 1; those from ``quick`` on are slow."""
    slow = pytest.mark.slow
    return [
        *range(quick),
        *(pytest.param(seed, marks=slow) for seed in range(quick, count)),
    ]
