"""A soak of a minute: nothing is lost, out of order or kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.soak.soak import Sample, kept, soak

CALM = Sample(minute=0, rss_mb=80, descriptors=60, tasks=12, threads=4, logs=10)


@pytest.mark.slow
@pytest.mark.live
def test_a_minute_of_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    assert soak(tmp_path, 1, seed=7, rest_s=40) == []


@pytest.mark.parametrize(
    "more",
    [
        {"rss_mb": 110},
        {"descriptors": 90},
        {"tasks": 13},
        {"threads": 13},
        {"logs": 11},
    ],
    ids=str,
)
def test_what_is_kept_is_told(more: dict[str, int]) -> None:
    assert len(kept(CALM, dataclasses.replace(CALM, **more))) == 1
    assert kept(CALM, CALM) == []
