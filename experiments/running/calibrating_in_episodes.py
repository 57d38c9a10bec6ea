"""Calibration by the load itself, where it comes in episodes.

In an episode a request costs something else than in the light bursts that told what the
entries cost beside each other: more wait at once, and the broker has not been idle for
long. So the baseline plays episodes with the costs that were found. What its CPU took,
over these costs of what was answered, is the factor by which all of them are corrected:
the load is then what the config writes, whatever the light bursts have missed.
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
from experiments.running.calibration_runs import UNDISTURBED
from experiments.running.progress import Watcher
from experiments.running.trials import Deck, on_its_machine
from experiments.worlds.episodes import EpisodicWorld
from experiments.worlds.world import Trial, WorldError

EPISODES: Final = 20


def corrected(
    experiment: Experiment,
    found: Calibration,
    world: EpisodicWorld,
    watcher: Watcher,
    estimate_s: float,
) -> Calibration:
    """Return a calibration whose costs are those in episodes. Live it takes about 8 s.

    :raises WorldError: if the processes fail, or no episode says what it cost.
    """
    trials = list(_trials(experiment.with_machine(found)))
    watcher.planned(EPISODES, estimate_s, 1)
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
    """Yield the baseline's trials, of rounds that the experiment does not have."""
    header = experiment.experiment
    other = {"again": False, "blocks": EPISODES, "seed": header.seed + 1}
    changed = {
        "experiment": header.model_copy(update=other),
        "limits": experiment.limits.model_copy(update=UNDISTURBED),
        "arms": (experiment.arm(header.baseline),),
    }
    point = points(experiment.model_copy(update=changed))[0]
    for number in range(EPISODES):
        yield Trial(
            experiment=point.experiment,
            block=number,
            arm=point.experiment.arms[0],
            order=0,
            stretch=point.stretch,
        )


def _ratios(trials: list[Trial], world: EpisodicWorld, watcher: Watcher) -> list[float]:
    """Play the trials; return what each cost over what it would by its calibration."""
    deck, first = Deck(), trials[0]
    with world.session(on_machine(first.experiment, first.stretch)) as session:
        session.rehearse(*on_its_machine(first, deck.draw(first)))
        for trial in trials:
            watcher.started(trial)
            session.play(*on_its_machine(trial, deck.draw(trial)))
        results = [each.result for each in session.finish()]
    return [each.cost_ratio for each in results if each.valid and each.cost_ratio]


def _scaled(cost: Cost, factor: float) -> Cost:
    return Cost(
        mean_us=round(cost.mean_us * factor, 3),
        low_us=_times(cost.low_us, factor),
        high_us=_times(cost.high_us, factor),
    )


def _times(value_us: float | None, factor: float) -> float | None:
    return None if value_us is None else round(value_us * factor, 3)
