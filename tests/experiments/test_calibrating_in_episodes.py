"""Calibration by episodes, against brokers whose true costs are known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from experiments.design.calibration import Calibration
from experiments.design.config import Experiment, parse
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.running.calibrating.in_episodes import ROUNDS, corrected
from experiments.worlds.episodes import Episode
from experiments.worlds.world import RunResult, Trial, WorldError
from tests.experiments.test_capacity import CONTENT
from tests.experiments.unwatched import Unwatched

# What the light bursts have found, and what is true.
FOUND_US = {"control": 100.0, "bulk": 800.0}
TRUE_US = {"control": 250.0, "bulk": 900.0}
ARMS = ["fifo", "wfq", "fifo-again"]
FOUND = Calibration.model_validate(
    {
        "source": "a test",
        "costs": {
            name: {"mean_us": us, "low_us": us / 2, "high_us": us * 2}
            for name, us in FOUND_US.items()
        },
        "unbilled_us": 30.0,
        "reading_us": 12.0,
        "travel_us": 40.0,
    }
)


@dataclass
class Broker:
    """Answers everything, at its true costs; `fails` is after how many episodes.

    Some of its episodes are on a machine that takes ``slower`` times as long.
    """

    fails: int | None = None
    silent: bool = False
    slower: int = 1
    rehearsed: int = 0
    played: list[tuple[Trial, Trace]] = field(default_factory=list)

    def session(self, experiment: Experiment) -> AbstractContextManager[Broker]:
        assert [arm.name for arm in experiment.all_arms()] == ARMS
        return nullcontext(self)

    def rehearse(self, trial: Trial, replayed: Trace) -> None:
        self.rehearsed += 1

    def play(self, trial: Trial, replayed: Trace) -> tuple[int, int]:
        if len(self.played) == self.fails:
            raise RunFailed("broker ended with status 9")
        self.played.append((trial, replayed))
        return self.probes_ns(len(self.played))

    def probes_ns(self, number: int) -> tuple[int, int]:
        """Return what the loop took in the episode with this number, from 1."""
        slow = self.slower if number % 3 == 1 else 1
        return (1_600_000 * slow, 1_600_000 * slow)

    def finish(self) -> Iterator[Episode]:
        for number, (trial, replayed) in enumerate(self.played, start=1):
            names = Counter(replayed.column("traffic"))
            used_us = sum(TRUE_US[name] * count for name, count in names.items())
            probes_ns = self.probes_ns(number)
            used_us *= probes_ns[0] / 1_600_000
            if trial.arm.name == "wfq":
                # What it costs under another arm is that arm's affair.
                used_us *= 7
            by_then_us = sum(FOUND_US[name] * count for name, count in names.items())
            ratio = None if self.silent else used_us / by_then_us
            result = RunResult(valid=True, cost_ratio=ratio, probes_ns=probes_ns)
            rows: Any = None
            yield Episode(
                trial=trial,
                requests=rows,
                samples=rows,
                result=result,
                started="",
                seconds=0.1,
            )


def experiment() -> Experiment:
    return parse(
        {
            **CONTENT,
            "arms": [*CONTENT["arms"], {"name": "wfq", "scheduler": "wfq"}],
            "episodes": {"session_rounds": 2, "rounds_min": 2},
        }
    )


def test_the_load_of_an_episode_is_what_it_is_said_to_be() -> None:
    broker = Broker()
    found = corrected(experiment(), FOUND, broker, Unwatched(), 0.1)
    # Half of them are the baseline's or its twin's, each after one of another arm.
    order = [trial.arm.name for trial, _ in broker.played]
    assert len(order) == 2 * ROUNDS
    assert set(order[::2]) == {"wfq"}
    assert set(order[1::2]) <= {"fifo", "fifo-again"}
    assert broker.rehearsed == len(set(order))
    assert len({trial.run_id for trial, _ in broker.played}) == ROUNDS * 2
    # What all of the load costs is right, though not what each entry does.
    names = Counter(
        name for _, replayed in broker.played for name in replayed.column("traffic")
    )
    costs = {name: cost.mean_us for name, cost in found.costs.items()}
    said_us = sum(costs[name] * count for name, count in names.items())
    true_us = sum(TRUE_US[name] * count for name, count in names.items())
    assert said_us == pytest.approx(true_us, rel=0.01)
    factor = costs["bulk"] / FOUND_US["bulk"]
    assert costs["control"] == pytest.approx(FOUND_US["control"] * factor, rel=1e-4)
    assert found.costs["bulk"].high_us == pytest.approx(2 * costs["bulk"], rel=1e-4)
    assert found.unbilled_us == pytest.approx(30.0 * factor, rel=1e-4)
    assert found.reading_us == pytest.approx(12.0 * factor, rel=1e-4)
    # The way there is not the broker's.
    assert found.travel_us == 40.0


def test_costs_are_those_of_the_machine_in_quiet() -> None:
    """What was slow for an episode would be no load for what counts later."""
    steady = corrected(experiment(), FOUND, Broker(), Unwatched(), 0.1)
    flipping = corrected(experiment(), FOUND, Broker(slower=2), Unwatched(), 0.1)
    assert steady.loop_us == flipping.loop_us == 1600.0
    for name in FOUND_US:
        cost_us = steady.costs[name].mean_us
        assert flipping.costs[name].mean_us == pytest.approx(cost_us, rel=0.02)


def test_no_round_of_the_experiment_is_played_beforehand() -> None:
    broker = Broker()
    corrected(experiment(), FOUND, broker, Unwatched(), 0.1)
    traces = {replayed.sha256 for _, replayed in broker.played}
    assert len(traces) == ROUNDS
    seeds = {trial.experiment.experiment.seed for trial, _ in broker.played}
    assert experiment().experiment.seed not in seeds
    assert all(
        math.isclose(trial.stretch, 0.75, rel_tol=0.1) for trial, _ in broker.played
    )


def test_processes_that_fail_end_it() -> None:
    with pytest.raises(WorldError, match="calibration: broker ended with status 9"):
        corrected(experiment(), FOUND, Broker(fails=3), Unwatched(), 0.1)


def test_episodes_without_a_cost_end_it() -> None:
    with pytest.raises(WorldError, match="no CPU time is known"):
        corrected(experiment(), FOUND, Broker(silent=True), Unwatched(), 0.1)
