"""Calibration of a cluster: what the whole load costs the broker that leads.

What a request costs there, the leader pays in part when a follower asks for it. So the
baseline is given the experiment's own load, and the leader's CPU is divided by what the
requests that were served cost in nominal time: a factor, by which the trace is
stretched for the next round. The load decides what a request costs (a broker that is
woken for each spends more), so the rounds that count are at the stretch that was found,
where the share of the CPU in use is the one that the config writes.

All traffic is taken to cost that factor times its nominal cost. Where its entries cost
in other proportions than nominally, the total load is right and its parts are not.

Nothing befalls a cluster but what befalls its load: where that is scaled beyond what
the broker can do, followers are handed many records at a time, and a request costs a
third of what it does when each is handed on by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.design.calibration import Calibration
from experiments.design.config import Experiment
from experiments.design.faults import ScaleLoad
from experiments.running.calibrating.runs import (
    CONFIDENCE,
    baseline_alone,
    cost,
    of_runs,
    replay,
    stated_us,
)
from experiments.running.progress import Watcher
from experiments.worlds.world import Trial, World, WorldError

ROUNDS: Final = 4
# Before these the load is not yet what it is to be.
_SETTLING: Final = 2
_COLUMNS: Final = ("request_id", "outcome", "service_ns", "prior_ns")


def calibrate_by_load(
    experiment: Experiment,
    world: World,
    watcher: Watcher,
    source: str,
    *,
    rounds: int = ROUNDS,
) -> Calibration:
    """Measure by what factor requests cost more in a world than nominally.

    :raises WorldError: if runs fail repeatedly, or a nominal cost is not known.
    """
    alone = of_runs(_baseline(experiment), _SETTLING + rounds)
    nominal = stated_us(alone, world)
    watcher.planned(_SETTLING + rounds, world.estimate_s(alone), 1)
    factors, bills_us = [1.0], []
    for number in range(_SETTLING + rounds):
        trial = Trial(
            experiment=alone,
            block=number,
            arm=alone.arms[0],
            order=0,
            stretch=factors[-1],
        )
        run = replay(trial, world, watcher, _COLUMNS)
        served = run.rows.filter(pc.equal(run.rows["outcome"], "ok"))
        traffic = [run.traffic[it] for it in served["request_id"].to_pylist()]
        factors.append(_factor(run.result.broker_cpu_s, traffic, nominal))
        bills_us.append(_bills_us(served, traffic))
    found = np.array(factors[-rounds:])
    return Calibration(
        source=source,
        costs={name: cost([*(mean_us * found)]) for name, mean_us in nominal.items()},
        bills_us=_mean_us(bills_us[-rounds:]),
        confidence=CONFIDENCE,
    )


def _baseline(experiment: Experiment) -> Experiment:
    """Return the baseline alone in nominal time, with what befalls the load."""
    alone = baseline_alone(experiment.model_copy(update={"machine": None}))
    faults = tuple(it for it in experiment.faults if isinstance(it, ScaleLoad))
    return alone.model_copy(update={"faults": faults})


def _factor(
    cpu_s: float | None, traffic: Sequence[str], nominal: Mapping[str, float]
) -> float:
    """Return a broker's CPU over what the requests that it served cost nominally.

    ``traffic`` has the entry of each.

    :raises WorldError: if there is none, or no CPU is known.
    """
    if cpu_s is None or not traffic:
        raise WorldError("calibration: no CPU time is known, or nothing was served")
    return cpu_s * 1e6 / math.fsum(nominal[each] for each in traffic)


def _bills_us(rows: pa.Table, traffic: Sequence[str]) -> dict[str, float]:
    """Return the median bill of each entry's requests, as far as there are bills."""
    billed_ns = pc.add(rows["service_ns"], rows["prior_ns"]).fill_null(0).to_numpy()
    entry = np.array(traffic)
    known = billed_ns > 0
    return {
        str(name): float(np.median(billed_ns[known & (entry == name)])) / 1000
        for name in np.unique(entry[known])
    }


def _mean_us(rounds: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    """Return the mean of each entry, to the nanosecond; None if a round lacks one."""
    entries = rounds[0].keys()
    if not entries or any(each.keys() != entries for each in rounds):
        return None
    return {
        name: round(math.fsum(each[name] for each in rounds) / len(rounds), 3)
        for name in entries
    }
