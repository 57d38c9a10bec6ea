"""What one request of each traffic entry costs the broker's CPU here: which way to ask.

Where brokers keep rows, light bursts tell what the entries cost, and episodes, where
the load comes in them, what they cost there; where they keep none, and in a cluster,
only the whole load can be asked.
"""

from __future__ import annotations

from typing import cast

from experiments.design.calibration import Calibration
from experiments.design.capacity import in_rates
from experiments.design.config import Experiment
from experiments.design.worlds import WORLDS
from experiments.running.calibrating.by_light_bursts import calibrate_by_light_bursts
from experiments.running.calibrating.by_load import calibrate_by_load
from experiments.running.calibrating.in_episodes import calibrate_in_episodes
from experiments.running.progress import Watcher
from experiments.worlds.episodes import EpisodicWorld
from experiments.worlds.world import World


def calibrate(
    experiment: Experiment, world: World, watcher: Watcher, source: str
) -> Calibration:
    """Measure what each traffic entry's requests cost in a world.

    Live it takes about 20 s for one broker, 40 s where its load comes in episodes, and
    75 s for a cluster.

    :raises WorldError: if a run fails repeatedly, or a broker's rows say no costs.
    """
    if not WORLDS[world.name].rows or experiment.cluster is not None:
        return calibrate_by_load(experiment, world, watcher, source)
    found = calibrate_by_light_bursts(experiment, world, watcher, source)
    if experiment.episodes is None or WORLDS[world.name].computed:
        return found
    seconds = world.estimate_s(in_rates(experiment))
    alive = cast(EpisodicWorld, world)
    return calibrate_in_episodes(experiment, found, alive, watcher, seconds)
