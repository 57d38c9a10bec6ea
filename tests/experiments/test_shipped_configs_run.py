"""Shipped configs run on a small scale in a computed world."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.running.launching import run_experiment
from tests.experiments.shipped_configs import CONFIGS, small
from tests.experiments.unwatched import Unwatched

# Nine arms of this incident take long; kafka-4453-dose has three of them.
QUICK = [path for path in CONFIGS if path.stem != "kafka-4453"]


@pytest.mark.parametrize("config", QUICK, ids=[path.stem for path in QUICK])
def test_a_block_of_each_arm_is_recorded(config: Path, tmp_path: Path) -> None:
    missing = run_experiment(
        small(
            config, blocks=1, levels=1, duration_s=0.1, window_s=48.0, incident_s=0.8
        ),
        tmp_path,
        Unwatched(),
        resume=False,
        executor="sequential",
    )
    assert not missing
