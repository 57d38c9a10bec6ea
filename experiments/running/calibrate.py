"""Calibration: the mean CPU time of one request per traffic entry, and one read cost.

The experiment's own rounds are run on its baseline only, in sessions of fresh processes
as in the experiment, with traces that the experiment does not replay. The first
sessions only find the factor by which the trace is stretched on this machine. The later
sessions run at that factor, so that costs are those of the configured load.

Estimator. In one session the broker's process used CPU time C for n answered requests,
of which n_e belong to entry e. Its own rows (``prior_ns`` and ``service_ns``) billed
b_e on average to a request of e. An entry's cost is its bill plus an equal share of the
remainder, which no row is billed (writing answers, the event loop, housekeeping)::

    c_e = b_e + (C - sum n_e b_e) / n        so that  sum n_e c_e = C

Bills are wall-clock times. If their sum exceeds C, other processes had the CPU, and all
bills are reduced by one factor. A regression of C on the counts n_e would need no
bills. But counts of entries with bursts of one size hardly vary between rounds, so
their costs could not be separated.

Bills may be unknown (Apache Kafka), or belong to one of several brokers (a cluster).
Entries then keep the proportions of their stated costs w_e, and the total is measured:
c_e = w_e C / sum n_e w_e.

The read cost is the mean of ``prior_ns``, reduced by the same factor, over requests
that have one: a request may be read together with the one before it. The unit of
replication is the session: means and Student intervals are over sessions.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.stats import t as student

from experiments.design.calibration import Calibration, Cost
from experiments.design.capacity import in_rates, nominal_us, stretch
from experiments.design.config import BLOCKS_MAX, SEEDS, Experiment
from experiments.design.faults import ScaleLoad
from experiments.design.points import PlannedPoint
from experiments.design.world_config import WORLDS
from experiments.processes.children import RunFailed
from experiments.running.progress import Watcher
from experiments.running.trials import TraceCache, attempts_file, on_its_machine
from experiments.worlds.episodic_world import EpisodicWorld
from experiments.worlds.world import RunFiles, RunResult, Trial, World, WorldError

SESSIONS: Final = 4
CONFIDENCE: Final = 0.95
# Unmeasured first sessions, because cost and load depend on each other.
_SETTLING: Final = 2
_ROUNDS: Final = 6
_LOAD_S: Final = 1.5
# Initial guess of a cost that the config does not state.
_GUESS_US: Final = 200.0
# No limit: a late request uses the same CPU time.
_UNDISTURBED: Final = {"lateness_p99_ms": 1e6}


@dataclass(slots=True)
class _Used:
    """Sums over a session: CPU time, answered requests by entry, and their bills."""

    cpu_us: float = 0.0
    answered: Counter[str] = field(default_factory=Counter)
    billed_us: dict[str, float] = field(default_factory=dict)
    prior_us: float = 0.0
    read: int = 0
    loops_us: list[float] = field(default_factory=list)

    def add(self, rows: pa.Table, traffic: Sequence[str], cpu_s: float | None) -> None:
        """Add a run. Virtual time has no CPU clock, so the bills are the CPU time."""
        rows = rows.filter(pc.equal(rows["outcome"], "ok"))
        entries = np.array(
            [traffic[number] for number in rows["request_id"].to_pylist()]
        )
        prior_us, service_us = (
            rows[name].fill_null(0).to_numpy() / 1000
            for name in ("prior_ns", "service_ns")
        )
        billed_us = prior_us + service_us
        for name in np.unique(entries):
            mine = entries == name
            self.answered[str(name)] += int(mine.sum())
            before_us = self.billed_us.get(str(name), 0.0)
            self.billed_us[str(name)] = before_us + float(billed_us[mine].sum())
        self.prior_us += float(prior_us.sum())
        self.read += int((prior_us > 0).sum())
        self.cpu_us += float(billed_us.sum()) if cpu_s is None else cpu_s * 1e6

    @property
    def _billed_share(self) -> float:
        billed_us = math.fsum(self.billed_us.values())
        return min(1.0, self.cpu_us / billed_us) if billed_us else 0.0

    def by_bills_us(self) -> dict[str, float]:
        """Return the bill of each entry's requests plus a share of the remainder."""
        share = self._billed_share
        rest_us = self.cpu_us - share * math.fsum(self.billed_us.values())
        rest_us /= self.answered.total()
        return {
            name: share * self.billed_us[name] / count + rest_us
            for name, count in self.answered.items()
        }

    def in_proportion_us(self, stated_us: Mapping[str, float]) -> dict[str, float]:
        """Return each entry's cost, in proportion to the stated ones."""
        work_us = math.fsum(
            count * stated_us[name] for name, count in self.answered.items()
        )
        return {name: us * self.cpu_us / work_us for name, us in stated_us.items()}

    def read_us(self) -> float:
        """Return the mean cost of one read; 0 if none was billed."""
        return self._billed_share * self.prior_us / max(1, self.read)


def calibrate(
    experiment: Experiment,
    world: World,
    watcher: Watcher,
    source: str,
    sessions: int = SESSIONS,
) -> Calibration:
    """Measure the mean CPU time of each traffic entry's requests in a world.

    In the live world it takes less than a minute, with Apache Kafka some minutes.

    :raises WorldError: if a run fails, no request is answered, no CPU time is known, or
        a required cost is not stated.
    """
    billed = WORLDS[world.name].rows and experiment.cluster is None
    alone = _baseline_alone(experiment)
    there = Calibration(
        source=source,
        costs=_stated(alone, world, billed=billed),
        read=alone.nominal.read if alone.nominal else None,
    )
    alone = alone.changed(nominal=there)
    settling = _SETTLING if alone.workload.in_shares else 0
    rounds = 1
    if _has_sessions(alone, world):
        wanted = max(_ROUNDS, math.ceil(_LOAD_S / alone.workload.duration_s))
        rounds = max(1, min(wanted, BLOCKS_MAX // (settling + sessions)))
    alone = _repeated(alone, settling + sessions, rounds)
    seconds = world.estimate_s(in_rates(alone))
    watcher.planned(alone.blocks, seconds, lanes=1, stale=0)
    stated_us = nominal_us(in_rates(alone))
    found: list[dict[str, float]] = []
    reads_us: list[float] = []
    loops_us: list[float] = []
    for number in range(settling + sessions):
        factor = stretch(alone.with_machine(there))
        blocks = range(number * rounds, (number + 1) * rounds)
        used = _session(in_rates(alone), factor, blocks, world, watcher)
        costs_us = used.by_bills_us() if billed else used.in_proportion_us(stated_us)
        if number < settling:
            costs = {name: Cost(mean_us=us) for name, us in costs_us.items()}
            there = there.changed(costs={**there.costs, **costs})
        else:
            found.append(costs_us)
            reads_us.append(used.read_us())
            loops_us += used.loops_us
    costs = {
        name: _cost(each_us) if each_us else before
        for name, before in there.costs.items()
        for each_us in [[costs_us[name] for costs_us in found if name in costs_us]]
    }
    read = _cost(reads_us) if billed and max(reads_us) > 0 else None
    return Calibration(
        source=source,
        costs=costs,
        read=read,
        confidence=CONFIDENCE,
        loop_us=round(float(np.mean(loops_us)), 3) if loops_us else None,
    )


def _baseline_alone(experiment: Experiment) -> Experiment:
    """Return the experiment with one process of its baseline, and other traces.

    Of a cluster's faults, only the scaling of its load is kept.
    """
    header = experiment.experiment
    faults = experiment.faults
    if experiment.cluster is not None:
        faults = tuple(it for it in faults if isinstance(it, ScaleLoad))
    another = {"again": False, "seed": (header.seed + 1) % SEEDS}
    return experiment.changed(
        experiment=header.changed(**another),
        limits=experiment.limits.changed(**_UNDISTURBED),
        arms=(experiment.arm(header.baseline),),
        analysis=experiment.analysis.changed(compare=()),
        faults=faults,
        machine=None,
    )


def _stated(alone: Experiment, world: World, *, billed: bool) -> dict[str, Cost]:
    """Return the nominal cost of each entry, or a guess that bills will correct.

    :raises WorldError: if a cost is needed for its proportion and is not stated.
    """
    stated_us = nominal_us(alone)
    names = [entry.name for entry in alone.workload.traffic]
    for name in names:
        if not billed and name not in stated_us:
            raise WorldError(
                f"calibration: the cost of {name!r} must be stated in [nominal]: "
                f"brokers of the {world.name} world report only the cost of "
                f"all requests"
            )
    return {name: Cost(mean_us=stated_us.get(name, _GUESS_US)) for name in names}


def _has_sessions(experiment: Experiment, world: World) -> bool:
    return experiment.sessions is not None and not WORLDS[world.name].computed


def _repeated(alone: Experiment, count: int, rounds: int) -> Experiment:
    """Return the experiment with ``count`` sessions of ``rounds`` rounds."""
    if alone.sessions is None:
        return alone.changed(experiment=alone.experiment.changed(blocks=count * rounds))
    return alone.changed(sessions=alone.sessions.changed(count=count, rounds=rounds))


def _session(
    drawn: Experiment, factor: float, blocks: range, world: World, watcher: Watcher
) -> _Used:
    """Run one session; ``drawn`` has rates in nominal time."""
    point = PlannedPoint(experiment=drawn, stretch=factor)
    trials = [
        Trial(point=point, block=block, arm=drawn.arms[0], order=0) for block in blocks
    ]
    run = _in_one_session if _has_sessions(drawn, world) else _in_runs
    trace_cache, used = TraceCache(), _Used()
    try:
        for trial, result, rows in run(trials, trace_cache, world, watcher):
            watcher.ended(trial, result)
            if not result.valid:
                raise WorldError(f"calibration: {result.reason}")
            if result.broker_cpu_s is None and not WORLDS[world.name].computed:
                raise WorldError("calibration: no CPU time is known")
            traffic = trace_cache.draw(trial).column("traffic")
            used.add(rows, traffic, result.broker_cpu_s)
            if result.loop_us is not None:
                used.loops_us.append(result.loop_us)
    except RunFailed as failure:
        raise WorldError(f"calibration: {failure}") from failure
    if not used.answered or not used.cpu_us:
        raise WorldError("calibration: no request was answered, or none used CPU time")
    return used


_Run = tuple[Trial, RunResult, pa.Table]


def _in_one_session(
    trials: Sequence[Trial], trace_cache: TraceCache, world: World, watcher: Watcher
) -> Iterator[_Run]:
    """Run trials one after the other in a process that stays alive."""
    first = trials[0]
    with cast(EpisodicWorld, world).session(first.point.on_machine()) as session:
        session.run_unrecorded(*on_its_machine(first, trace_cache.draw(first)))
        for trial in trials:
            watcher.started(trial)
            session.run_episode(*on_its_machine(trial, trace_cache.draw(trial)))
        by_id = {trial.run_id: trial for trial in trials}
        for episode in session.finish():
            yield by_id[episode.trial.run_id], episode.result, episode.requests


def _in_runs(
    trials: Sequence[Trial], trace_cache: TraceCache, world: World, watcher: Watcher
) -> Iterator[_Run]:
    """Run each trial in a fresh process."""
    for trial in trials:
        watcher.started(trial)
        with tempfile.TemporaryDirectory(prefix="doorkeeper-calibrate-") as scratch:
            files = RunFiles(
                requests=Path(scratch, "requests.parquet"),
                samples=Path(scratch, "samples.parquet"),
                attempts=attempts_file(trial, Path(scratch)),
            )
            result = world.run(*on_its_machine(trial, trace_cache.draw(trial)), files)
            rows = pq.read_table(files.requests) if result.recorded else pa.table({})
        yield trial, result, rows


def _cost(sessions_us: Sequence[float]) -> Cost:
    """Return the mean over sessions with its Student interval, in whole nanoseconds."""
    mean_us = float(np.mean(sessions_us))
    if len(sessions_us) == 1:
        return Cost(mean_us=round(mean_us, 3))
    error_us = float(np.std(sessions_us, ddof=1)) / math.sqrt(len(sessions_us))
    half_us = float(student.ppf(0.5 + CONFIDENCE / 2, len(sessions_us) - 1)) * error_us
    return Cost(
        mean_us=round(mean_us, 3),
        low_us=round(max(0.0, mean_us - half_us), 3),
        high_us=round(mean_us + half_us, 3),
    )
