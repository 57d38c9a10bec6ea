"""Calibration of brokers that keep no rows: what the whole load costs them.

Nobody says what one request cost such a broker, only its process's CPU clock what all
did. So its first arm is given the experiment's own load, and its CPU is divided by what
the requests that it served cost in nominal time: a factor, by which the trace is
stretched for the next round. The load decides what a request costs (a broker that is
woken for each spends more), so the rounds that count are at the stretch that was found,
where the share of the CPU in use is the one that the config writes.

All traffic is taken to cost that factor times its nominal cost. Where its entries cost
in other proportions than nominally, the total load is right and its parts are not.

Brokers of a cluster are calibrated so, too: what a request costs there, the broker that
leads pays in part when a follower asks for it. The CPU is that broker's. Nothing
befalls it but what befalls the load: where that is scaled beyond what the broker can
do, followers are handed many records at a time, and a request costs a third of what it
does when each is handed on by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.design.calibration import Calibration
from experiments.design.capacity import in_rates, nominal_us
from experiments.design.config import Experiment
from experiments.design.faults import ScaleLoad
from experiments.load import trace
from experiments.running.calibrating.runs import (
    CONFIDENCE,
    UNDISTURBED,
    cost,
    run_that_counts,
)
from experiments.running.progress import Watcher
from experiments.running.trials import on_its_machine
from experiments.worlds.world import RunResult, Trial, World, WorldError

ROUNDS: Final = 4
# Before these the load is not yet what it is to be.
_SETTLING: Final = 2
_COLUMNS: Final = ("request_id", "outcome", "service_ns", "prior_ns")


def calibrate_by_load(
    experiment: Experiment, world: World, watcher: Watcher, source: str
) -> Calibration:
    """Measure by what factor requests cost more in a world than nominally.

    :raises WorldError: if runs fail repeatedly, or a nominal cost is not known.
    """
    alone = _baseline(experiment)
    nominal = nominal_us(alone)
    for entry in alone.workload.traffic:
        if entry.name not in nominal:
            raise WorldError(
                f"calibration: the cost of {entry.name!r} is to be stated in "
                f"[nominal]: brokers of the {world.name} world say only what all "
                "requests cost"
            )
    watcher.planned(_SETTLING + ROUNDS, world.estimate_s(alone), 1)
    factors, bills_us = [1.0], []
    for number in range(_SETTLING + ROUNDS):
        trial = Trial(
            experiment=alone,
            block=number,
            arm=alone.arms[0],
            order=0,
            stretch=factors[-1],
        )
        factor, bill_us = _factor(trial, nominal, world, watcher)
        factors.append(factor)
        bills_us.append(bill_us)
    found = np.array(factors[-ROUNDS:])
    return Calibration(
        source=source,
        costs={name: cost([*(mean_us * found)]) for name, mean_us in nominal.items()},
        bills_us=_mean_us(bills_us[-ROUNDS:]),
        confidence=CONFIDENCE,
    )


def _baseline(experiment: Experiment) -> Experiment:
    """Return the experiment in nominal time with its baseline alone."""
    experiment = in_rates(experiment.model_copy(update={"machine": None}))
    header = experiment.experiment.model_copy(update={"again": False})
    limits = experiment.limits.model_copy(update=UNDISTURBED)
    arms = (experiment.arm(header.baseline),)
    faults = tuple(it for it in experiment.faults if isinstance(it, ScaleLoad))
    changed = {"experiment": header, "limits": limits, "arms": arms, "faults": faults}
    return experiment.model_copy(update=changed)


def _factor(
    trial: Trial, nominal: dict[str, float], world: World, watcher: Watcher
) -> tuple[float, dict[str, float]]:
    """Return the broker's CPU over what the served requests cost nominally.

    And the median bill of each entry, if the broker says what it billed.
    """
    drawn = trace.generate(trial.experiment, trial.block)
    there, replayed = on_its_machine(trial, drawn)
    replay = partial(world.run, there, replayed)
    with run_that_counts(trial, replay, watcher) as (result, files):
        rows = pq.read_table(files.requests, columns=list(_COLUMNS))
        rows = rows.filter(pc.equal(rows["outcome"], "ok"))
        entries = drawn.column("traffic")
        traffic = [entries[number] for number in rows["request_id"].to_pylist()]
        return _of_run(result, traffic, nominal), _bills_us(rows, traffic)


def _of_run(result: RunResult, traffic: list[str], nominal: dict[str, float]) -> float:
    if result.broker_cpu_s is None or not traffic:
        raise WorldError("calibration: no CPU time is known, or nothing was served")
    return result.broker_cpu_s * 1e6 / math.fsum(nominal[each] for each in traffic)


def _bills_us(rows: pa.Table, traffic: list[str]) -> dict[str, float]:
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
