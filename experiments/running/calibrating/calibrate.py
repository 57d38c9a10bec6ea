"""What one request of each traffic entry costs the broker's CPU here: which way to ask.

Where brokers keep rows, light bursts guess what the entries cost, and runs or episodes
of the experiment's own load tell; where they keep none, each entry is played by itself.
Of a cluster only the whole load can be asked.
"""

from __future__ import annotations

from typing import Final, cast

from experiments.design.calibration import Calibration
from experiments.design.capacity import in_rates
from experiments.design.config import Experiment
from experiments.design.worlds import WORLDS
from experiments.running.calibrating.by_light_bursts import calibrate_by_light_bursts
from experiments.running.calibrating.by_load import calibrate_by_load
from experiments.running.calibrating.in_episodes import calibrate_in_episodes
from experiments.running.calibrating.in_runs import calibrate_in_runs
from experiments.running.calibrating.one_by_one import (
    LoadableWorld,
    calibrate_one_by_one,
)
from experiments.running.progress import Watcher
from experiments.worlds.episodes import EpisodicWorld
from experiments.worlds.world import World

# Of light bursts, where they are all that is asked.
_ROUNDS: Final = 3


def calibrate(
    experiment: Experiment,
    world: World,
    watcher: Watcher,
    source: str,
    rounds: int | None = None,
) -> Calibration:
    """Measure what each traffic entry's requests cost in a world.

    Live it takes from 30 to 60 s, and with Apache Kafka some minutes; more ``rounds``
    than usual tell it better.

    :raises WorldError: if a run fails repeatedly, or a broker's rows say no costs.
    """
    asked = {} if rounds is None else {"rounds": rounds}
    if experiment.cluster is not None:
        return calibrate_by_load(experiment, world, watcher, source, **asked)
    if not WORLDS[world.name].rows:
        return calibrate_one_by_one(
            experiment, cast(LoadableWorld, world), watcher, source, **asked
        )
    computed = WORLDS[world.name].computed
    light = (rounds or _ROUNDS) if computed else 1
    guess = calibrate_by_light_bursts(experiment, world, watcher, source, rounds=light)
    if computed:
        return guess
    if experiment.episodes is None:
        return calibrate_in_runs(experiment, guess, world, watcher, **asked)
    seconds = world.estimate_s(in_rates(experiment))
    alive = cast(EpisodicWorld, world)
    return calibrate_in_episodes(experiment, guess, alive, watcher, seconds, **asked)
