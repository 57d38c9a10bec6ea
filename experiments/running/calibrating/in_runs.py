"""Calibration by the load itself, where it comes in long runs and brokers keep rows.

Light bursts only guess what a long request costs among others: where one takes several
milliseconds, they were off by two fifths. So a few runs of the baseline are played as
the experiment's will be, stretched by that guess, and costs are what their rows say
(`bills`): the load is then what the config writes.
"""

from __future__ import annotations

from typing import Final

from experiments.design.calibration import Calibration
from experiments.design.capacity import on_machine, stretch
from experiments.design.config import Experiment
from experiments.running.calibrating.bills import COLUMNS, Bills, bills, by_bills
from experiments.running.calibrating.runs import baseline_alone, of_runs, replay
from experiments.running.progress import Watcher
from experiments.worlds.world import Trial, World, WorldError

ROUNDS: Final = 5


def calibrate_in_runs(
    experiment: Experiment,
    guess: Calibration,
    world: World,
    watcher: Watcher,
    *,
    rounds: int = ROUNDS,
) -> Calibration:
    """Measure what each traffic entry's requests cost in the experiment's own runs.

    ``guess`` is what light bursts found; it stays for an entry of which no run has a
    request.

    :raises WorldError: if runs fail repeatedly, or none says what it cost.
    """
    there = experiment.with_machine(guess)
    factor, alone = stretch(there), of_runs(baseline_alone(there), rounds)
    watcher.planned(rounds, world.estimate_s(on_machine(alone, factor)), 1)
    found: list[Bills] = []
    for number in range(rounds):
        trial = Trial(
            experiment=alone, block=number, arm=alone.arms[0], order=0, stretch=factor
        )
        run = replay(trial, world, watcher, COLUMNS)
        warmed_s = on_machine(alone, factor).workload.warmup_s
        said = bills(run.rows, run.traffic, run.result.broker_cpu_s, warmed_s)
        found += [] if said is None else [said]
    if not found:
        raise WorldError("calibration: no CPU time is known, or nothing was served")
    return by_bills(guess, found)
