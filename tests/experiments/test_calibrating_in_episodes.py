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
from tests.experiments.served_in_turn import Parts, serve
from tests.experiments.test_capacity import CONTENT
from tests.experiments.unwatched import Unwatched

# What the light bursts have found, and what is true.
FOUND_US = {"control": 100.0, "bulk": 800.0}
TRUE_US = {"control": 250.0, "bulk": 900.0}
READING_US, WRITING_US, UNBILLED_US, TRAVEL_US = 20.0, 12.0, 35.0, 15.0
WAKING_US, ROUSING_US, RETURNING_US = 7.0, 11.0, 4.0
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

    Some of its episodes are on a machine that takes ``slower`` times as long, or, where
    it is ``lurching``, is slow for a part of them that their mean does not tell.
    """

    fails: int | None = None
    silent: bool = False
    slower: int = 1
    lurching: bool = False
    rehearsed: int = 0
    # How many episodes there had been when each session began.
    sessions: list[int] = field(default_factory=list)
    played: list[tuple[Trial, Trace]] = field(default_factory=list)

    def session(self, experiment: Experiment) -> AbstractContextManager[Broker]:
        assert [arm.name for arm in experiment.all_arms()] == ARMS
        self.sessions.append(len(self.played))
        return nullcontext(self)

    def rehearse(self, trial: Trial, replayed: Trace) -> None:
        self.rehearsed += 1

    def play(self, trial: Trial, replayed: Trace) -> Conditions:
        if len(self.played) == self.fails:
            raise RunFailed("broker ended with status 9")
        self.played.append((trial, replayed))
        probes_ns = self.probes_ns(len(self.played))
        slowest_ns = 2 * probes_ns[0] if self.is_slow_for_a_while() else probes_ns[0]
        return Conditions(probes_ns=probes_ns, slowest_ns=slowest_ns)

    def is_slow_for_a_while(self) -> bool:
        """Say whether the machine was slow for a part of the latest episode."""
        return self.lurching and len(self.played) % 3 == 1

    def probes_ns(self, number: int) -> tuple[int, int]:
        """Return what the loop took in the episode with this number, from 1."""
        slow = self.slower if number % 3 == 1 else 1
        return (1_600_000 * slow, 1_600_000 * slow)

    def finish(self) -> Iterator[Episode]:
        begun = self.sessions[-1]
        of_session = self.played[begun:]
        for number, (trial, replayed) in enumerate(of_session, start=begun + 1):
            probes_ns = self.probes_ns(number)
            slower = probes_ns[0] / 1_600_000
            if self.lurching and number % 3 == 1:
                slower *= 1.5
            if trial.arm.name == "wfq":
                # What it costs under another arm is that arm's affair.
                slower *= 7
            true_us = np.array([TRUE_US[name] for name in replayed.column("traffic")])
            entries = replayed.column("traffic")
            guessed_us = np.array([FOUND_US[name] for name in entries])
            # One in ten was refused in time, and cost nothing.
            answered = np.arange(len(true_us)) % 10 > 0
            served = serve(
                replayed.table["intended_ns"].to_numpy()[answered] / 1000,
                (true_us[answered] - READING_US - UNBILLED_US) * slower,
                Parts(
                    reading_us=READING_US * slower,
                    waking_us=WAKING_US * slower,
                    writing_us=WRITING_US * slower,
                    event_loop_us=(UNBILLED_US - WRITING_US) * slower,
                    travel_us=TRAVEL_US,
                    rousing_us=ROUSING_US,
                    returning_us=RETURNING_US,
                ),
                ids=np.flatnonzero(answered),
                in_idle_us=-WAKING_US * slower,
            )
            refused = served.rows.slice(0, 1).set_column(
                1, "outcome", pa.array(["error"])
            )
            rows = pa.concat_tables([served.rows, refused])
            result = RunResult(
                valid=True,
                broker_cpu_s=None if self.silent else served.cpu_s,
                cost_ratio=served.cpu_s * 1e6 / guessed_us[answered].sum(),
                probes_ns=probes_ns,
            )
            yield Episode(
                trial=trial,
                requests=rows,
                samples=rows.slice(0, 0),
                result=result,
                started="",
                seconds=0.1,
            )


def experiment(**episodes: float) -> Experiment:
    return parse(
        {
            **CONTENT,
            "arms": [*CONTENT["arms"], {"name": "wfq", "scheduler": "wfq"}],
            "episodes": {"session_rounds": 2, "rounds_min": 2, **episodes},
        }
    )


def calibrated(broker: Broker) -> Calibration:
    return calibrate_in_episodes(experiment(), FOUND, broker, Unwatched(), 0.1)


def test_a_request_costs_its_bill_and_its_part_of_what_nobody_was_billed() -> None:
    broker = Broker()
    found = calibrated(broker)
    # As the experiment's rounds: each arm once.
    order = [trial.arm.name for trial, _ in broker.played]
    rounds = [set(order[at : at + 3]) for at in range(0, len(order), 3)]
    assert rounds == [set(ARMS)] * ROUNDS
    # Two rounds a session, as the experiment has them.
    assert broker.sessions == list(range(0, 3 * ROUNDS, 6))
    assert broker.rehearsed == len(ARMS) * len(broker.sessions)
    assert len({trial.run_id for trial, _ in broker.played}) == 3 * ROUNDS
    # Each entry costs what it does here, whatever was found before.
    for name, cost in found.costs.items():
        assert cost.mean_us == pytest.approx(TRUE_US[name], rel=2e-3)
        assert cost.low_us == pytest.approx(TRUE_US[name], rel=2e-3)
        assert cost.high_us == pytest.approx(TRUE_US[name], rel=2e-3)
    # Its broker's rows say what each entry costs under another arm.
    assert found.arms == {
        "wfq": {name: pytest.approx(7.0, rel=0.01) for name in TRUE_US}
    }
    # The last of many behind each other is answered before the loop goes round.
    assert found.unbilled_us == pytest.approx(UNBILLED_US, rel=0.02)
    assert found.reading_us == pytest.approx(READING_US, rel=2e-3)
    assert found.waking_us == pytest.approx(WAKING_US, rel=0.02)
    assert found.writing_us == pytest.approx(WRITING_US, rel=1e-4)
    assert found.travel_us == pytest.approx(TRAVEL_US, rel=1e-3)
    assert found.rousing_us == pytest.approx(ROUSING_US, rel=0.05)
    assert found.returning_us == pytest.approx(RETURNING_US, rel=1e-3)


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


def test_nor_are_they_of_a_machine_that_was_slow_for_a_while() -> None:
    steady = calibrated(Broker())
    asked = experiment(slowest_band=1.2)
    lurching = Broker(lurching=True)
    found = calibrate_in_episodes(asked, FOUND, lurching, Unwatched(), 0.1)
    unasked = calibrated(Broker(lurching=True))
    for name in FOUND_US:
        cost_us = steady.costs[name].mean_us
        assert found.costs[name].mean_us == pytest.approx(cost_us, rel=0.02)
        assert unasked.costs[name].mean_us > 1.1 * cost_us


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
