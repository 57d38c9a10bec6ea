"""Calibration one by one: what an entry's requests cost a broker that keeps no rows.

Only its process's CPU clock speaks, of all requests at once. So a round plays the
experiment's own load, and then each entry by itself: what each costs beside the others
is told by the latter, and what all of them cost together by the former, to which their
sum is scaled. By itself an entry comes three times as often, so that the broker has
enough to do; one that is most of the load comes as it does.

The load decides what a request costs (a broker that is woken for each spends more), so
a first session, in nominal time, only says by how much all are to be stretched. In a
session the broker is alive, and as warm as it will be when runs count. What its process
uses without requests is in the costs, as it is in the experiment's load. An entry of
which nothing is served keeps its nominal part of what the whole load cost. Intervals
are Student's t over rounds.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow.compute as pc

from experiments.design.calibration import Calibration, Cost
from experiments.design.capacity import nominal_us, on_machine, stretch
from experiments.design.config import Experiment
from experiments.design.faults import ScaleLoad
from experiments.processes.children import RunFailed
from experiments.running.calibrating.runs import (
    CONFIDENCE,
    baseline_alone,
    cost,
    of_runs,
    stated_us,
)
from experiments.running.progress import Watcher
from experiments.running.trials import Deck, on_its_machine
from experiments.worlds.episodes import EpisodicWorld
from experiments.worlds.world import Trial, World, WorldError

ROUNDS: Final = 6
# Of short loads several are played, until they are as long as this.
_LOAD_S: Final = 3.0
_ALONE: Final = 3.0
# What the others come by meanwhile: a trace has the connections of all of them.
_HARDLY: Final = 1e-3


@dataclass(frozen=True, slots=True)
class _Load:
    """A load to play: all entries as they come, or one of them alone."""

    experiment: Experiment
    alone: str | None = None


@dataclass(slots=True)
class _Used:
    """The CPU of a load's runs, and how many requests of each entry were served."""

    cpu_us: float
    served: Counter[str]


class LoadableWorld(World, EpisodicWorld, Protocol):
    """A world whose brokers can be alive while loads change."""


def calibrate_one_by_one(
    experiment: Experiment,
    world: LoadableWorld,
    watcher: Watcher,
    source: str,
    *,
    rounds: int = ROUNDS,
) -> Calibration:
    """Measure what each traffic entry's requests cost, together and by themselves.

    With Apache Kafka it takes some minutes, most of which its JVM warms up.

    :raises WorldError: if the processes fail, say no CPU, or serve nothing, or if a
        nominal cost is not known.
    """
    whole = baseline_alone(experiment.model_copy(update={"machine": None}))
    nominal = stated_us(whole, world)
    (settling,) = _played([_Load(whole)], 1.0, world, watcher)
    guess = _costs([settling], {}, nominal)
    factor = stretch(experiment.with_machine(_calibration(guess, source)))
    loads = list(_loads(whole))
    used = _played(loads * rounds, factor, world, watcher)
    together = used[:: len(loads)]
    alone = {
        load.alone: used[number :: len(loads)]
        for number, load in enumerate(loads)
        if load.alone is not None
    }
    return _calibration(_costs(together, alone, nominal), source)


def _costs(
    together: Sequence[_Used],
    alone: Mapping[str, Sequence[_Used]],
    nominal: Mapping[str, float],
) -> dict[str, Cost]:
    """Return each entry's cost from what was used, by round."""
    found: dict[str, list[float]] = {name: [] for name in nominal}
    for number, of_all in enumerate(together):
        served = of_all.served
        if not served.total():
            raise WorldError("calibration: nothing was served")
        factor = of_all.cpu_us / _work(served, nominal)
        parts_us = {
            name: runs[number].cpu_us / runs[number].served[name]
            for name, runs in alone.items()
            if runs[number].served[name] and served[name]
        }
        level = of_all.cpu_us / _work(served, parts_us) if parts_us else 1.0
        for name, mean_us in nominal.items():
            known = name in parts_us
            found[name].append(parts_us[name] * level if known else mean_us * factor)
    return {name: cost(each_us) for name, each_us in found.items()}


def _work(served: Mapping[str, int], costs_us: Mapping[str, float]) -> float:
    """Return what those of the served requests cost whose costs are given."""
    return math.fsum(served[name] * cost_us for name, cost_us in costs_us.items())


def _calibration(found: Mapping[str, Cost], source: str) -> Calibration:
    return Calibration(source=source, costs=dict(found), confidence=CONFIDENCE)


def _loads(whole: Experiment) -> Iterator[_Load]:
    """Yield the load of all entries, then that of each alone."""
    yield _Load(whole)
    costs_us, traffic = nominal_us(whole), whole.workload.traffic
    work = [it.arrivals.mean_rate_per_s() * costs_us[it.name] for it in traffic]
    for entry, mine in zip(traffic, work, strict=True):
        most = 2 * mine > math.fsum(work)
        factors = {it.name: _HARDLY for it in traffic}
        factors[entry.name] = 1.0 if most else _ALONE
        scaled = tuple(
            ScaleLoad(
                kind="scale-load",
                at_s=0.0,
                until_s=whole.workload.duration_s,
                factor=factor,
                traffic=name,
            )
            for name, factor in factors.items()
        )
        alone = whole.model_copy(update={"faults": (*whole.faults, *scaled)})
        yield _Load(alone, entry.name)


def _played(
    loads: Sequence[_Load], factor: float, world: EpisodicWorld, watcher: Watcher
) -> list[_Used]:
    """Play loads one after the other in a session, each run a trace of its own."""
    there = on_machine(loads[0].experiment, factor)
    times = math.ceil(_LOAD_S / there.workload.duration_s)
    deck = Deck()
    runs = times * len(loads)
    trials = [
        Trial(
            experiment=of_runs(load.experiment, runs),
            block=number,
            arm=load.experiment.arms[0],
            order=0,
            stretch=factor,
        )
        for number, load in enumerate(
            itertools.chain.from_iterable([load] * times for load in loads)
        )
    ]
    watcher.planned(len(trials), there.workload.duration_s, 1)
    try:
        with world.session(there) as session:
            session.rehearse(*on_its_machine(trials[0], deck.draw(trials[0])))
            for trial in trials:
                watcher.started(trial)
                session.play(*on_its_machine(trial, deck.draw(trial)))
            episodes = list(session.finish())
    except RunFailed as failure:
        raise WorldError(f"calibration: {failure}") from failure
    used = [_Used(0.0, Counter()) for _ in loads]
    for number, episode in enumerate(episodes):
        watcher.ended(episode.trial, episode.result)
        entries = deck.draw(episode.trial).column("traffic")
        rows = episode.requests.filter(pc.equal(episode.requests["outcome"], "ok"))
        if episode.result.broker_cpu_s is None:
            raise WorldError("calibration: no CPU time is known")
        of_load = used[number // times]
        of_load.cpu_us += episode.result.broker_cpu_s * 1e6
        of_load.served.update(entries[it] for it in rows["request_id"].to_pylist())
    return used
