"""What every test runs under: reproducible examples, and no time limits on them."""

from __future__ import annotations

import os

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
