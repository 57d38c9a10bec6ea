"""What the ways to calibrate share: the baseline alone, and runs that count."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import t as student

from experiments.design.calibration import Cost
from experiments.design.capacity import in_rates, nominal_us
from experiments.design.config import Experiment
from experiments.load import trace
from experiments.running.progress import Watcher
from experiments.running.trials import attempts_file, on_its_machine
from experiments.worlds.world import RunFiles, RunResult, Trial, World, WorldError

CONFIDENCE: Final = 0.95
# Neither late requests nor a CPU that others had change what requests cost.
UNDISTURBED: Final = {"lateness_p99_ms": 1e6, "broker_wait_share": 1e6}
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A run that counts: its rows, and the entry of each request of its trace."""

    result: RunResult
    rows: pa.Table
    traffic: list[str]


def baseline_alone(experiment: Experiment) -> Experiment:
    """Return the experiment with its baseline alone, on blocks that it does not have.

    Its traffic is in rates, of nominal time.
    """
    header = experiment.experiment
    another = {"again": False, "seed": header.seed + 1}
    return in_rates(experiment).model_copy(
        update={
            "experiment": header.model_copy(update=another),
            "limits": experiment.limits.model_copy(update=UNDISTURBED),
            "arms": (experiment.arm(header.baseline),),
        }
    )


def of_runs(alone: Experiment, runs: int) -> Experiment:
    """Return an experiment that says of itself that it has so many runs of its arm."""
    header = alone.experiment.model_copy(update={"blocks": runs})
    return alone.model_copy(update={"experiment": header})


def replay(
    trial: Trial, world: World, watcher: Watcher, columns: Sequence[str]
) -> Replayed:
    """Replay a trial's trace at its stretch, again if that run does not count.

    :raises WorldError: if none of three does.
    """
    drawn = trace.generate(trial.experiment, trial.block)
    there, stretched = on_its_machine(trial, drawn)
    with run_that_counts(trial, partial(world.run, there, stretched), watcher) as run:
        result, files = run
        rows = pq.read_table(files.requests, columns=list(columns))
    return Replayed(result=result, rows=rows, traffic=drawn.column("traffic"))


def stated_us(alone: Experiment, world: World) -> dict[str, float]:
    """Return the nominal cost of each entry's requests.

    :raises WorldError: if one is not known, where brokers say what all of them cost.
    """
    nominal = nominal_us(alone)
    for entry in alone.workload.traffic:
        if entry.name not in nominal:
            raise WorldError(
                f"calibration: the cost of {entry.name!r} is to be stated in "
                f"[nominal]: brokers of the {world.name} world say only what all "
                "requests cost"
            )
    return nominal


@contextmanager
def run_that_counts(
    trial: Trial, replay: Callable[[RunFiles], RunResult], watcher: Watcher
) -> Iterator[tuple[RunResult, RunFiles]]:
    """Yield a run that counts, and its files, which are gone afterwards.

    :raises WorldError: if none of three does.
    """
    watcher.started(trial)
    with tempfile.TemporaryDirectory(prefix="doorkeeper-calibrate-") as scratch:
        files = RunFiles(
            requests=Path(scratch, "requests.parquet"),
            samples=Path(scratch, "samples.parquet"),
            attempts=attempts_file(trial, Path(scratch)),
        )
        for _ in range(_ATTEMPTS):
            result = replay(files)
            watcher.ended(trial, result)
            if result.valid:
                yield result, files
                return
    raise WorldError(f"calibration: {_ATTEMPTS} runs did not count: {result.reason}")


def cost(each_us: Sequence[float]) -> Cost:
    """Return the mean of what was measured with its Student interval.

    Of a single measurement there is none. A cost is never negative.
    """
    mean_us = float(np.mean(each_us))
    if len(each_us) == 1:
        return Cost(mean_us=rounded(mean_us))
    error_us = float(np.std(each_us, ddof=1)) / math.sqrt(len(each_us))
    half_us = float(student.ppf(0.5 + CONFIDENCE / 2, len(each_us) - 1)) * error_us
    return Cost(
        mean_us=rounded(mean_us),
        low_us=rounded(max(0.0, mean_us - half_us)),
        high_us=rounded(mean_us + half_us),
    )


def writing_us(rows: pa.Table) -> float:
    """Return what it took to write an answer, the median."""
    began_ns, ended_ns = (
        rows[name].to_numpy() for name in ("response_dequeued_ns", "response_sent_ns")
    )
    return float(np.median(ended_ns - began_ns)) / 1000


def rounded(value_us: float) -> float:
    """Keep nanoseconds."""
    return round(value_us, 3)
