"""Calibration by episodes, against brokers whose true costs are known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from experiments.design.calibration import Calibration
from experiments.design.config import Experiment, parse
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.running.calibrating.in_episodes import ROUNDS, calibrate_in_episodes
from experiments.worlds.episodes import Conditions, Episode
from experiments.worlds.world import RunResult, Trial, WorldError
from tests.experiments.test_capacity import CONTENT
from tests.experiments.unwatched import Unwatched

# What the light bursts have found, and what is true.
FOUND_US = {"control": 100.0, "bulk": 800.0}
TRUE_US = {"control": 250.0, "bulk": 900.0}
READING_US, WRITING_US, UNBILLED_US, TRAVEL_US = 20.0, 12.0, 35.0, 15.0
WAKING_US = 7.0
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

    def play(self, trial: Trial, replayed: Trace) -> Conditions:
        if len(self.played) == self.fails:
            raise RunFailed("broker ended with status 9")
        self.played.append((trial, replayed))
        return Conditions(probes_ns=self.probes_ns(len(self.played)))

    def probes_ns(self, number: int) -> tuple[int, int]:
        """Return what the loop took in the episode with this number, from 1."""
        slow = self.slower if number % 3 == 1 else 1
        return (1_600_000 * slow, 1_600_000 * slow)

    def finish(self) -> Iterator[Episode]:
        for number, (trial, replayed) in enumerate(self.played, start=1):
            probes_ns = self.probes_ns(number)
            slower = probes_ns[0] / 1_600_000
            if trial.arm.name == "wfq":
                # What it costs under another arm is that arm's affair.
                slower *= 7
            true_us = np.array([TRUE_US[name] for name in replayed.column("traffic")])
            cpu_s = None if self.silent else slower * true_us.sum() / 1e6
            # One in ten was refused in time, and cost nothing.
            answered = np.arange(len(true_us)) % 10 > 0
            sent_ns = replayed.table["intended_ns"].to_numpy()
            # Whoever comes close behind another has waited for it.
            waited_ns = np.where(np.diff(sent_ns, prepend=0) < 300_000, 99_000, 0)
            took_ns = (true_us + 2 * TRAVEL_US) * 1000 + waited_ns
            done_ns = sent_ns + np.where(answered, took_ns, 0).astype(int)
            before_ns = np.maximum.accumulate(done_ns)[:-1]
            idle = np.append(True, sent_ns[1:] > before_ns)
            prior_us = READING_US + WAKING_US * idle
            service_us = true_us - prior_us - UNBILLED_US
            rows = pa.table(
                {
                    "sent_ns": sent_ns,
                    "response_dequeued_ns": sent_ns,
                    "response_sent_ns": sent_ns + round(WRITING_US * slower * 1000),
                    "client_done_ns": done_ns,
                    "request_id": np.arange(len(true_us)),
                    "outcome": np.where(answered, "ok", "error"),
                    "service_ns": (service_us * slower * 1000).round(),
                    "prior_ns": prior_us * slower * 1000,
                }
            )
            if cpu_s is not None:
                cpu_s -= slower * true_us[~answered].sum() / 1e6
            result = RunResult(valid=True, broker_cpu_s=cpu_s, probes_ns=probes_ns)
            yield Episode(
                trial=trial,
                requests=rows,
                samples=rows.slice(0, 0),
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


def calibrated(broker: Broker) -> Calibration:
    return calibrate_in_episodes(experiment(), FOUND, broker, Unwatched(), 0.1)


def test_a_request_costs_its_bill_and_its_part_of_what_nobody_was_billed() -> None:
    broker = Broker()
    found = calibrated(broker)
    # Half of them are the baseline's or its twin's, each after one of another arm.
    order = [trial.arm.name for trial, _ in broker.played]
    assert len(order) == 2 * ROUNDS
    assert set(order[::2]) == {"wfq"}
    assert set(order[1::2]) <= {"fifo", "fifo-again"}
    assert broker.rehearsed == len(set(order))
    assert len({trial.run_id for trial, _ in broker.played}) == ROUNDS * 2
    # Each entry costs what it does here, whatever was found before.
    for name, cost in found.costs.items():
        assert cost.mean_us == pytest.approx(TRUE_US[name], rel=1e-4)
        assert cost.low_us == pytest.approx(TRUE_US[name], rel=1e-4)
        assert cost.high_us == pytest.approx(TRUE_US[name], rel=1e-4)
    assert found.unbilled_us == pytest.approx(UNBILLED_US, rel=1e-4)
    assert found.reading_us == pytest.approx(READING_US, rel=1e-4)
    assert found.waking_us == pytest.approx(WAKING_US, rel=1e-3)
    assert found.writing_us == pytest.approx(WRITING_US, rel=1e-4)
    assert found.travel_us == pytest.approx(TRAVEL_US, rel=1e-3)


def test_costs_are_those_of_the_machine_in_quiet() -> None:
    """What was slow for an episode would be no load for what counts later."""
    steady = calibrated(Broker())
    flipping = calibrate_in_episodes(
        experiment(), FOUND, Broker(slower=2), Unwatched(), 0.1
    )
    assert steady.loop_us == flipping.loop_us == 1600.0
    for name in FOUND_US:
        cost_us = steady.costs[name].mean_us
        assert flipping.costs[name].mean_us == pytest.approx(cost_us, rel=0.02)


def test_no_round_of_the_experiment_is_played_beforehand() -> None:
    broker = Broker()
    calibrated(broker)
    traces = {replayed.sha256 for _, replayed in broker.played}
    assert len(traces) == ROUNDS
    seeds = {trial.experiment.experiment.seed for trial, _ in broker.played}
    assert experiment().experiment.seed not in seeds
    assert all(
        math.isclose(trial.stretch, 0.75, rel_tol=0.1) for trial, _ in broker.played
    )


def test_processes_that_fail_end_it() -> None:
    with pytest.raises(WorldError, match="calibration: broker ended with status 9"):
        calibrated(Broker(fails=3))


def test_episodes_without_a_cost_end_it() -> None:
    with pytest.raises(WorldError, match="no CPU time is known"):
        calibrate_in_episodes(
            experiment(), FOUND, Broker(silent=True), Unwatched(), 0.1
        )
