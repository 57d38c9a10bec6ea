"""What every test runs under: reproducible examples, no time limits, its process."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# `deterministic` draws the same examples every time, so a red run is red again;
# HYPOTHESIS_PROFILE=explore draws new ones and prints how to repeat a failure.
settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", max_examples=1_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))

# Tests of one group share a process: what they start is dear (a Spark session, Apache
# Kafka), or is timed (a live broker) and must not meet another of its kind.
_GROUPS = {"kafka": "sockets", "live": "sockets", "spark": "spark"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell pytest-xdist, where it runs, which tests belong together."""
    for item in items:
        for marker, group in _GROUPS.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.xdist_group(group))
                break
