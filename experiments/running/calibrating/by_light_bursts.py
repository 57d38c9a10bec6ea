"""Calibration by light bursts: what a request of each entry costs the broker's CPU.

Each *round* replays two light traces to the baseline arm, one dense and one sparse. In
both the entries take turns, and requests come in small bursts: a broker that is woken
for a single request spends as much on waking as on the request, and its capacity is
what it does when it has enough to do. By how much the broker's CPU grew from the sparse
to the dense run, for each request more, is what a request costs on average over the
entries; what a broker uses without requests is in both runs and drops out. The entries
differ by what their own rows were billed: the median, because stamps are of the wall
clock, and a few rows hold a wait for the CPU that others had. What the average has
beyond those bills is writing answers and the event loop, and every request's alike.

Rounds are a few seconds each, so their spread shows how the machine moves; intervals
are Student's t over rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.design.arrival_processes import Bursts
from experiments.design.calibration import Calibration, Cost
from experiments.design.capacity import in_rates
from experiments.design.config import Experiment
from experiments.design.workload import Traffic
from experiments.load import trace
from experiments.load.trace import Trace
from experiments.running.calibrating.runs import (
    CONFIDENCE,
    UNDISTURBED,
    cost,
    rounded,
    run_that_counts,
    writing_us,
)
from experiments.running.progress import Watcher
from experiments.worlds.world import RunFiles, RunResult, Trial, World, WorldError

_BURST: Final = 12
_BURST_S: Final = 0.001
_DENSE_EVERY_S: Final = 0.03
_SPARSE_EVERY_S: Final = 0.25
_TURN_S: Final = 0.5
# The first third of a turn meets cold code and files that are not there yet.
_WARM_AFTER: Final = 1 / 3
_CONNECTIONS_MAX: Final = 16
# Between two bursts there is more, within one less.
_PAUSE_NS: Final = 5_000_000
_WAY: Final = (
    "sent_ns",
    "prior_ns",
    "enqueued_ns",
    "response_dequeued_ns",
    "response_sent_ns",
    "client_done_ns",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run: the bill of a request by entry, the CPU of all, how many there were.

    ``reading_us`` is what of a bill is from before the request was queued, on average
    over the entries, ``writing_us`` what it took to send an answer; ``travel_us`` half
    of what it took to the broker and back, where it was idle. ``cpu_us`` is None where
    time is virtual: of what no row is billed there, writing alone can be told.
    """

    billed_us: dict[str, float]
    reading_us: float
    writing_us: float
    travel_us: float
    cpu_us: float | None
    requests: int


def calibrate_by_light_bursts(
    experiment: Experiment,
    world: World,
    watcher: Watcher,
    source: str,
    *,
    rounds: int,
) -> Calibration:
    """Measure what each traffic entry's requests cost in a world, live for 4 s a round.

    One of the ``rounds`` is a guess; the interval comes from several.

    :raises WorldError: if a run fails repeatedly, or a broker's rows say no costs.
    """
    dense, sparse = (
        _light(experiment, every_s, rounds)
        for every_s in (_DENSE_EVERY_S, _SPARSE_EVERY_S)
    )
    watcher.planned(2 * rounds, world.estimate_s(dense), 1)
    measured = []
    for number in range(rounds):
        few, many = (
            _run(
                Trial(experiment=it, block=number, arm=it.arms[0], order=order),
                world,
                watcher,
            )
            for order, it in enumerate((sparse, dense))
        )
        measured.append((many, _unbilled_us(few, many)))
    rest_us = [rest for _, rest in measured]
    unbilled_us = rounded(max(0.0, float(np.mean(rest_us))))
    writing = rounded(float(np.mean([many.writing_us for many, _ in measured])))
    return Calibration(
        source=source,
        costs={
            entry.name: _cost(
                [many.billed_us[entry.name] for many, _ in measured], rest_us
            )
            for entry in experiment.workload.traffic
        },
        unbilled_us=unbilled_us,
        writing_us=min(writing, unbilled_us),
        reading_us=rounded(float(np.mean([many.reading_us for many, _ in measured]))),
        travel_us=rounded(float(np.median([many.travel_us for many, _ in measured]))),
        confidence=CONFIDENCE,
    )


def _light(experiment: Experiment, every_s: float, rounds: int) -> Experiment:
    """Return a run of the baseline in which the entries take turns at small bursts."""
    experiment = in_rates(experiment.model_copy(update={"machine": None}))
    traffic = tuple(
        _in_turn(entry, number, every_s)
        for number, entry in enumerate(experiment.workload.traffic)
    )
    workload = experiment.workload.model_copy(
        update={
            "duration_s": len(traffic) * _TURN_S,
            "warmup_s": 0.0,
            "traffic": traffic,
        }
    )
    header = experiment.experiment.model_copy(update={"blocks": rounds, "again": False})
    limits = experiment.limits.model_copy(update=UNDISTURBED)
    return experiment.model_copy(
        update={
            "experiment": header,
            "workload": workload,
            "limits": limits,
            "arms": (experiment.arm(header.baseline),),
            "episodes": None,
        }
    )


def _in_turn(entry: Traffic, number: int, every_s: float) -> Traffic:
    connections = min(entry.connections, _CONNECTIONS_MAX)
    bursts = Bursts(
        kind="bursts",
        rate_per_s=_BURST / _BURST_S,
        gaps="even",
        every_s=every_s,
        on_s=_BURST_S,
    )
    return entry.model_copy(
        update={
            "arrivals": bursts,
            "connections": connections,
            "clients": min(entry.clients, connections),
            "start_s": number * _TURN_S,
            "stop_s": (number + 1) * _TURN_S,
            "read_ms": 0.0,
        }
    )


def _run(trial: Trial, world: World, watcher: Watcher) -> _Run:
    drawn = trace.generate(trial.experiment, trial.block)
    replay = partial(world.run, trial, drawn)
    with run_that_counts(trial, replay, watcher) as (result, files):
        return _measured(trial, drawn, result, files)


def _unbilled_us(few: _Run, many: _Run) -> float:
    """Return what a request costs on average beyond its bill."""
    if few.cpu_us is None or many.cpu_us is None:
        return many.writing_us
    average_us = (many.cpu_us - few.cpu_us) / (many.requests - few.requests)
    return average_us - float(np.mean([*many.billed_us.values()]))


def _measured(trial: Trial, drawn: Trace, result: RunResult, files: RunFiles) -> _Run:
    columns = ["request_id", "service_ns", *_WAY]
    rows = pq.read_table(files.requests, columns=columns)
    ids = rows["request_id"].to_numpy()
    billed_ns, prior_ns = np.full((2, len(drawn)), -1, np.int64)
    of_row = pc.add(rows["service_ns"], rows["prior_ns"]).fill_null(-1)
    billed_ns[ids] = of_row.to_numpy()
    prior_ns[ids] = rows["prior_ns"].fill_null(-1).to_numpy()
    name = np.array(drawn.column("traffic"))
    at_s = drawn.table["intended_ns"].to_numpy() / 1e9
    billed_us, reading_us = {}, []
    for entry in trial.experiment.workload.traffic:
        warm = at_s >= entry.start_s + _TURN_S * _WARM_AFTER
        mine = (name == entry.name) & warm & (billed_ns >= 0)
        if not mine.any():
            raise WorldError(
                f"calibration: no row says what requests of {entry.name!r} cost"
            )
        billed_us[entry.name] = float(np.median(billed_ns[mine])) / 1000
        reading_us.append(float(np.median(prior_ns[mine])) / 1000)
    cpu_ns = result.accounts.get("cpu_ns")
    return _Run(
        billed_us=billed_us,
        reading_us=float(np.mean(reading_us)),
        writing_us=writing_us(rows),
        travel_us=_travel_us(rows),
        cpu_us=None if cpu_ns is None else cpu_ns / 1000,
        requests=len(drawn),
    )


def _travel_us(rows: pa.Table) -> float:
    """Return half of what the first request of a burst took outside of the broker."""
    columns = (rows[name].to_numpy() for name in _WAY)
    sent_ns, prior_ns, enqueued_ns, _, answered_ns, done_ns = columns
    order = np.argsort(sent_ns)
    first = order[np.diff(sent_ns[order], prepend=-_PAUSE_NS) >= _PAUSE_NS]
    there_ns = enqueued_ns - prior_ns - sent_ns
    back_ns = done_ns - answered_ns
    return float(np.median((there_ns + back_ns)[first])) / 2000


def _cost(billed_us: Sequence[float], rest_us: Sequence[float]) -> Cost:
    """Return the mean over rounds of a bill and the rest, with its interval.

    Where the rest is lost in the noise, the cost is not below the bill.
    """
    lacking_us = max(0.0, -float(np.mean(rest_us)))
    return cost([*np.add(np.add(billed_us, rest_us), lacking_us)])
