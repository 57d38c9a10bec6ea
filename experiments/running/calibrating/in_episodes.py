"""Calibration by the load itself, where it comes in episodes.

In an episode a request costs something else than in the light bursts that told what the
entries cost beside each other: more wait at once, and other brokers have been served
since this one was. So a few rounds are played as the experiment's will be, with the
costs that were found. What the baseline's CPU took, over
these costs of what was answered, is the factor by which all of them are corrected: the
load is then what the config writes, whatever the light bursts have missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from experiments.design.calibration import Calibration, Cost
from experiments.design.capacity import on_machine
from experiments.design.config import Experiment
from experiments.design.points import points
from experiments.processes.children import RunFailed
from experiments.running.calibrating.runs import UNDISTURBED
from experiments.running.progress import Watcher
from experiments.running.runner import plan
from experiments.running.trials import Deck, on_its_machine
from experiments.worlds.episodes import EpisodicWorld
from experiments.worlds.world import Trial, WorldError

ROUNDS: Final = 6


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
        ratios = _ratios(trials, world, watcher)
    except RunFailed as failure:
        raise WorldError(f"calibration: {failure}") from failure
    if not ratios:
        raise WorldError("calibration: no CPU time is known, or nothing was served")
    factor = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return found.model_copy(
        update={
            "costs": {
                name: _scaled(cost, factor) for name, cost in found.costs.items()
            },
            "unbilled_us": _times(found.unbilled_us, factor),
            "reading_us": _times(found.reading_us, factor),
        }
    )


def _trials(experiment: Experiment) -> Iterator[Trial]:
    """Yield trials of rounds that the experiment does not have, in their order."""
    header = experiment.experiment
    other = {"blocks": ROUNDS, "seed": header.seed + 1}
    changed = {
        "experiment": header.model_copy(update=other),
        "limits": experiment.limits.model_copy(update=UNDISTURBED),
    }
    yield from plan(points(experiment.model_copy(update=changed)))


def _ratios(trials: list[Trial], world: EpisodicWorld, watcher: Watcher) -> list[float]:
    """Play the trials; return what each of the baseline's cost over its calibration.

    The baseline's twin, if there is one, is as good.
    """
    deck, first = Deck(), trials[0]
    with world.session(on_machine(first.experiment, first.stretch)) as session:
        for arm in {trial.arm.name: trial for trial in trials}.values():
            session.rehearse(*on_its_machine(arm, deck.draw(first)))
        for trial in trials:
            watcher.started(trial)
            session.play(*on_its_machine(trial, deck.draw(trial)))
        results = [each.result for each in session.finish() if _is_baseline(each.trial)]
    return [each.cost_ratio for each in results if each.valid and each.cost_ratio]


def _is_baseline(trial: Trial) -> bool:
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
