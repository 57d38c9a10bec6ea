"""Number of sessions from a pilot: the formula, and a recording."""

from __future__ import annotations

import json
import math
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest

from experiments.design.config import Experiment
from experiments.design.config_errors import ExperimentError
from experiments.load.trace import Trace
from experiments.running import runner
from experiments.running.executors.sequential import Sequential
from experiments.running.pilot import sessions_for, sessions_needed
from experiments.worlds.episodic_world import Conditions
from experiments.worlds.world import Trial
from tests.experiments.test_sessions import FakeSession, FakeWorld, experiment
from tests.experiments.unwatched import Unwatched


def test_two_pilot_sessions_need_what_students_t_says() -> None:
    """With one degree of freedom t is 12.706, and s of (-a, a) is a sqrt(2)."""
    found = sessions_for([-0.01, 0.01], precision=0.1, alpha=0.05)
    assert found == math.ceil((12.7062 * 0.01 * math.sqrt(2) / math.log(1.1)) ** 2) == 4


def test_half_the_precision_needs_four_times_the_sessions() -> None:
    logs = [*np.random.default_rng(1).normal(0, 0.3, 8)]
    wide = sessions_for(logs, precision=math.expm1(0.1), alpha=0.05)
    narrow = sessions_for(logs, precision=math.expm1(0.05), alpha=0.05)
    assert 4 * (wide - 1) <= narrow <= 4 * wide


def test_the_bound_holds_for_an_estimated_deviation() -> None:
    """Half-widths of at most d cover in 95 of 100 experiments (Stein 1945)."""
    draw = np.random.default_rng(1945)
    tries, covered = 1000, 0
    for _ in range(tries):
        pilot = draw.normal(0, 0.2, 6)
        count = sessions_for([*pilot], precision=0.1, alpha=0.05)
        mean = float(np.mean([*pilot, *draw.normal(0, 0.2, max(0, count - 6))]))
        covered += abs(mean) <= math.log(1.1)
    # Binomial(1000, 0.95): three standard deviations are 0.021.
    assert covered / tries >= 0.95 - 0.021


class VaryingSession(FakeSession):
    """Takes twice as long under wfq in the second session."""

    def run_episode(self, trial: Trial, replayed: Trace) -> Conditions:
        slow = trial.arm.name == "wfq" and trial.session == 1
        self.world.latency_ns = 2_000_000 if slow else 1_000_000
        return super().run_episode(trial, replayed)


class Varying(FakeWorld):
    def session(self, experiment: Experiment) -> AbstractContextManager[VaryingSession]:
        return nullcontext(VaryingSession(self))


def recorded(directory: Path, count: int) -> None:
    world = Varying()
    small = experiment(count=count, quantile=0.5)
    runner.run(small, directory, world, Sequential(world), Unwatched(), resume=False)


def test_a_pilot_is_read_by_sessions(tmp_path: Path) -> None:
    recorded(tmp_path, count=4)
    (needed,) = sessions_needed(tmp_path, precision=0.1, alpha=0.05)
    assert (needed.arm, needed.pilot_sessions) == ("wfq", 4)
    # Log ratios 0, log 2, 0, 0.
    assert needed.deviation == pytest.approx(math.log(2) / 2)
    assert needed.sessions == sessions_for([0, math.log(2), 0, 0], 0.1, 0.05)


def test_a_pilot_of_two_sessions_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path, count=2)
    with pytest.raises(ExperimentError, match="2 sessions with a finite quantile"):
        sessions_needed(tmp_path, precision=0.1, alpha=0.05)


def test_a_directory_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="no pilot can be read"):
        sessions_needed(tmp_path, precision=0.1, alpha=0.05)
    (tmp_path / "manifest.json").write_text(json.dumps({"runs": []}))
    with pytest.raises(ExperimentError, match="no pilot can be read"):
        sessions_needed(tmp_path, precision=0.1, alpha=0.05)
