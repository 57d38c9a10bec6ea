"""Kills during a topic creation, a deletion, maintenance, a stop or a recovery.

`test_crash_live.py` covers kills during ordinary traffic.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live.crashing import Crashing

pytestmark = pytest.mark.live

MOMENTS = ("creation", "deletion", "compaction", "retention", "stop", "recovery")
SEED = 4453


@pytest.mark.parametrize(
    ("brokers", "of_each"),
    [(1, 1), pytest.param(2, 9, marks=pytest.mark.slow)],
    ids=["6 kills", "108 kills"],
)
def test_no_moment_is_a_bad_one(tmp_path: Path, brokers: int, of_each: int) -> None:
    """No confirmed record is lost, and no deleted topic or record returns."""
    print(f"seeds from {SEED}")
    with ThreadPoolExecutor(brokers) as threads:
        lives = [
            threads.submit(lived, tmp_path / f"{number}", SEED + number, of_each)
            for number in range(brokers)
        ]
        for life in lives:
            crashing = life.result()
            print(f"{crashing.kills} kills, too late for {dict(crashing.over)}")
            assert crashing.kills >= of_each * len(MOMENTS)


def lived(directory: Path, seed: int, of_each: int) -> Crashing:
    """Return a broker after all cycles, in a seeded random order."""
    crashing = Crashing(directory, seed)
    moments = [*MOMENTS] * of_each
    random.Random(seed).shuffle(moments)
    try:
        for moment in moments:
            crashing.cycle(moment)
    except BaseException:
        crashing.abandon()
        raise
    crashing.close()
    return crashing
