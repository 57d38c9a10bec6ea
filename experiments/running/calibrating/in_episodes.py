"""Calibration by the load itself, where it comes in episodes.

In an episode a request costs something else than in the light bursts that told what the
entries cost beside each other: more wait at once, and other brokers have been served
since this one was. So a few rounds are played as the experiment's will be, with the
costs that were found. What the baseline's CPU took, over these costs of what was
answered, is the factor by which all of them are corrected: the load is then what the
config writes, whatever the light bursts have missed. It is taken from episodes on the
machine in quiet, and how fast that is, is kept: it is the one on which episodes will
count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from experiments.design.calibration import Calibration, Cost
from experiments.design.capacity import on_machine
from experiments.design.config import Experiment
from experiments.design.points import points
from experiments.processes.children import RunFailed
from experiments.running.calibrating.runs import UNDISTURBED
from experiments.running.progress import Watcher
from experiments.running.runner import plan
from experiments.running.speed import QuietSpeed, loop_ns
from experiments.running.trials import Deck, on_its_machine
from experiments.worlds.episodes import EpisodicWorld
from experiments.worlds.world import RunResult, Trial, WorldError

ROUNDS: Final = 5


def corrected(
    experiment: Experiment,
    found: Calibration,
    world: EpisodicWorld,
    watcher: Watcher,
    estimate_s: float,
) -> Calibration:
    """Return a calibration whose costs are those in episodes.

    Live it takes about 20 s with eight arms.

    :raises WorldError: if the processes fail, or no episode says what it cost.
    """
    there = experiment.with_machine(found)
    trials = list(_trials(there))
    watcher.planned(len(trials), estimate_s, 1)
    try:
        results = _results(trials, world, watcher)
    except RunFailed as failure:
        raise WorldError(f"calibration: {failure}") from failure
    assert there.episodes is not None
    quiet = QuietSpeed(there.episodes.speed_band)
    for _, result in results:
        quiet.add(loop_ns(result.probes_ns))
    ratios = [
        result.cost_ratio
        for trial, result in results
        if _is_baseline(trial) and result.valid and result.cost_ratio
        if not quiet.fault(loop_ns(result.probes_ns))
    ]
    if not ratios:
        raise WorldError(
            "calibration: no CPU time is known, nothing was served, or the machine "
            "was not in quiet in any episode of the baseline"
        )
    factor = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return found.model_copy(
        update={
            "costs": {
                name: _scaled(cost, factor) for name, cost in found.costs.items()
            },
            "unbilled_us": _times(found.unbilled_us, factor),
            "reading_us": _times(found.reading_us, factor),
            "loop_us": round(quiet.loop_ns / 1000, 3),
        }
    )


def _trials(experiment: Experiment) -> Iterator[Trial]:
    """Yield trials of rounds that the experiment does not have, in their order.

    An episode of the baseline follows each of another arm: it meets the caches that it
    will meet, and most of the time goes to what is asked for.
    """
    header = experiment.experiment
    another = {"blocks": ROUNDS, "seed": header.seed + 1}
    changed = {
        "experiment": header.model_copy(update=another),
        "limits": experiment.limits.model_copy(update=UNDISTURBED),
    }
    trials = plan(points(experiment.model_copy(update=changed)))
    for _, of_round in itertools.groupby(trials, key=lambda trial: trial.block):
        baseline: list[Trial] = []
        others: list[Trial] = []
        for trial in of_round:
            (baseline if _is_baseline(trial) else others).append(trial)
        for attempt, other in enumerate(others):
            yield other
            yield replace(baseline[attempt % len(baseline)], attempt=attempt)


def _results(
    trials: list[Trial], world: EpisodicWorld, watcher: Watcher
) -> list[tuple[Trial, RunResult]]:
    """Play the trials, in turn; return what came of each."""
    deck, first = Deck(), trials[0]
    with world.session(on_machine(first.experiment, first.stretch)) as session:
        for arm in {trial.arm.name: trial for trial in trials}.values():
            session.rehearse(*on_its_machine(arm, deck.draw(first)))
        for trial in trials:
            watcher.started(trial)
            session.play(*on_its_machine(trial, deck.draw(trial)))
        return [(each.trial, each.result) for each in session.finish()]


def _is_baseline(trial: Trial) -> bool:
    """Whether it is the baseline's; its twin, if there is one, is as good."""
    arm = trial.experiment.again_of(trial.arm) or trial.arm.name
    return arm == trial.experiment.experiment.baseline


def _scaled(cost: Cost, factor: float) -> Cost:
    return Cost(
        mean_us=round(cost.mean_us * factor, 3),
        low_us=_times(cost.low_us, factor),
        high_us=_times(cost.high_us, factor),
    )


def _times(value_us: float | None, factor: float) -> float | None:
    return None if value_us is None else round(value_us * factor, 3)
