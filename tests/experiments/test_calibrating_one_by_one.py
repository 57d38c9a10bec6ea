"""Calibration one by one, against brokers that say nothing but what CPU they used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from experiments.design.calibration import Calibration
from experiments.design.config import parse
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.running.calibrating.calibrate import calibrate
from experiments.running.calibrating.one_by_one import ROUNDS
from experiments.worlds.episodes import Conditions, Episode
from experiments.worlds.world import RunResult, Trial, WorldError
from tests.experiments.test_capacity import CONTENT, NOMINAL_US
from tests.experiments.unwatched import Unwatched

# In other proportions than nominally: control costs three times as much, bulk half.
TRUE_US = {"control": 600.0, "bulk": 500.0}


@dataclass
class Silent:
    """A broker without rows; in nominal time a request costs half as much again.

    Every third request of ``refused`` is refused, and costs nothing; of ``unknown``
    all are.
    """

    name = "kafka"
    unknown: str = ""
    refused: str = "control"
    fails: bool = False
    lonely: float = 1.0
    silent: bool = False
    sessions: list[list[tuple[Trial, Trace]]] = field(default_factory=list)
    rehearsed: int = 0

    def session(self, experiment: Any) -> AbstractContextManager[Silent]:
        self.sessions.append([])
        return nullcontext(self)

    def rehearse(self, trial: Trial, replayed: Trace) -> None:
        self.rehearsed += 1

    def play(self, trial: Trial, replayed: Trace) -> Conditions:
        if self.fails:
            raise RunFailed("broker ended with status 9")
        self.sessions[-1].append((trial, replayed))
        return Conditions(probes_ns=(1_000_000,))

    def finish(self) -> Iterator[Episode]:
        for trial, replayed in self.sessions[-1]:
            names = np.array(replayed.column("traffic"))
            number = np.arange(len(names))
            served = (names != self.unknown) & (
                (names != self.refused) | (number % 3 > 0)
            )
            true_us = np.array([TRUE_US[name] for name in names])
            slower = 1.5 if trial.stretch == 1 else 1.0
            if trial.experiment.faults:
                slower *= self.lonely
            cpu_s = float(true_us[served].sum()) * slower / 1e6
            rows = pa.table(
                {"request_id": number, "outcome": np.where(served, "ok", "error")}
            )
            yield Episode(
                trial=trial,
                requests=rows,
                samples=rows.slice(0, 0),
                result=RunResult(
                    valid=True, broker_cpu_s=None if self.silent else cpu_s
                ),
                started="",
                seconds=0.1,
            )


def calibrated(broker: Silent, content: dict[str, Any] | None = None) -> Calibration:
    experiment = parse(content or CONTENT)
    return calibrate(experiment, cast(Any, broker), Unwatched(), "a test")


def test_each_entry_costs_what_it_does_whatever_its_nominal_part() -> None:
    """The first session is in nominal time, where requests cost more: it is left out.

    It says by how much the second one is stretched, by what all cost together.
    """
    broker = Silent()
    found = calibrated(broker)
    for name, true_us in TRUE_US.items():
        cost = found.costs[name]
        assert cost.mean_us == pytest.approx(true_us, rel=0.01)
        assert cost.low_us == pytest.approx(true_us, rel=0.01)
        assert cost.high_us == pytest.approx(true_us, rel=0.01)
    settling, mixing = broker.sessions
    assert broker.rehearsed == 2
    assert {trial.stretch for trial, _ in settling} == {1.0}
    (stretch,) = {trial.stretch for trial, _ in mixing}
    assert 0.75 < stretch < 1.5


def test_a_round_has_all_entries_together_and_each_alone() -> None:
    broker = Silent()
    calibrated(broker)
    loads = [
        {fault.traffic: fault.factor for fault in trial.experiment.faults}
        for trial, _ in broker.sessions[1]
    ]
    control, bulk = {"control": 3.0, "bulk": 1e-3}, {"control": 1e-3, "bulk": 1.0}
    assert loads == [{}, control, bulk] * ROUNDS
    traces = {replayed.sha256 for _, replayed in broker.sessions[1]}
    assert len(traces) == len(loads)
    seeds = {trial.experiment.experiment.seed for trial, _ in broker.sessions[1]}
    assert CONTENT["experiment"]["seed"] not in seeds


def test_what_entries_cost_together_decides() -> None:
    """By themselves all cost twice as much: a broker that has less to do."""
    found = calibrated(Silent(lonely=2.0))
    for name, true_us in TRUE_US.items():
        assert found.costs[name].mean_us == pytest.approx(true_us, rel=0.01)


def test_short_loads_are_played_several_times() -> None:
    broker = Silent()
    short = {**CONTENT["workload"], "duration_s": 0.4, "warmup_s": 0.0}
    calibrated(broker, {**CONTENT, "workload": short})
    assert len(broker.sessions[1]) % (3 * ROUNDS) == 0
    assert len(broker.sessions[1]) > 12 * ROUNDS


def test_what_is_never_served_keeps_its_nominal_part_of_the_whole() -> None:
    """Kafka of today knows no request of a controller."""
    found = calibrated(Silent(unknown="control"))
    assert found.costs["bulk"].mean_us == pytest.approx(500.0, rel=0.01)
    half_us = NOMINAL_US["control"] / 2
    assert found.costs["control"].mean_us == pytest.approx(half_us, rel=0.01)


def test_processes_that_fail_end_it() -> None:
    with pytest.raises(WorldError, match="calibration: broker ended with status 9"):
        calibrated(Silent(fails=True))


def test_a_broker_without_cpu_says_nothing() -> None:
    with pytest.raises(WorldError, match="no CPU time is known"):
        calibrated(Silent(silent=True))


def test_without_nominal_costs_nothing_can_be_said() -> None:
    with pytest.raises(WorldError, match="'control' is to be stated in"):
        calibrated(Silent(), {**CONTENT, "nominal": None})
