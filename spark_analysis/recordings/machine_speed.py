"""What the machine did to an experiment: its speed, and who else wanted its CPUs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spark_analysis.recordings.contract import Manifest, Run
from spark_analysis.statistics.intervals import Estimate, mean_interval
from spark_analysis.statistics.ratios import ratio_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """How steady the machine was, by a fixed loop in each run.

    ``rounds_played`` counts rounds, or blocks of long runs and their repetitions,
    ``rounds_spoiled`` those whose arms met machines too different. Of the others
    ``dealt_again`` counts episodes that were dealt again for that. ``spread`` is the
    standard deviation of the log-ratio of the loop's times for two arms of one that
    counts; ``slowest`` is the longest time over the shortest.
    """

    rounds_played: int
    rounds_spoiled: int
    dealt_again: int
    spread: float
    slowest: float


def loop_ns(run: Run) -> float:
    """Return the time of the fixed loop in a run."""
    return statistics.geometric_mean(run.probes_ns)


def steadiness(manifest: Manifest) -> Steadiness | None:
    """Return how steady the machine was; None where no loop was timed."""
    probed = [run for run in manifest.runs if run.probes_ns]
    if not probed:
        return None
    rounds: dict[tuple[str, int, str], list[Run]] = {}
    for run in probed:
        # A block of long runs is repeated whole, a round of episodes in parts: of a
        # block those belong together that were judged together, and have one reason.
        which = run.reason if manifest.episodes is None else ""
        if _spoiled(run) or run.valid or manifest.episodes is not None:
            rounds.setdefault((run.point, run.block, which), []).append(run)
    steady = [[run for run in of if not _spoiled(run)] for of in rounds.values()]
    counting = [of for of in steady if of and all(run.valid for run in of)]
    variances = [
        statistics.variance([math.log(loop_ns(run)) for run in of])
        for of in counting
        if len(of) > 1
    ]
    spoiled = sum(not of for of in steady)
    times = [loop_ns(run) for run in probed]
    return Steadiness(
        rounds_played=len(rounds),
        rounds_spoiled=spoiled,
        dealt_again=sum(
            sum(map(_spoiled, of))
            for of, left in zip(rounds.values(), steady, strict=True)
            if left
        ),
        # Two arms differ with twice the variance of one about its round.
        spread=math.sqrt(2 * statistics.fmean(variances)) if variances else 0.0,
        slowest=max(times) / min(times),
    )


def loop_ratio(manifest: Manifest, arm: str) -> Estimate | None:
    """Return the loop's time for an arm's runs over that for the baseline's.

    The geometric mean over the blocks of the only point in which both were timed, with
    its t interval; None where there is none.
    """
    times = {
        (run.block, run.arm): loop_ns(run)
        for run in manifest.runs_compared
        if run.probes_ns
    }
    logs = [
        math.log(times[block, arm] / times[block, manifest.baseline])
        for block in manifest.blocks
        if {(block, arm), (block, manifest.baseline)} <= times.keys()
    ]
    if not logs:
        return None
    return ratio_of(mean_interval(np.array(logs), manifest.options.confidence))


def _spoiled(run: Run) -> bool:
    return run.reason.startswith("machine unsteady")


def quiet_share(manifest: Manifest) -> float | None:
    """Return the share of the episodes that met the machine in quiet, if any loop ran.

    Those that were dealt again are among them; None where there are no episodes.
    """
    probed = [run for run in manifest.runs if run.probes_ns]
    if manifest.episodes is None or not probed:
        return None
    return 1 - sum(map(_spoiled, probed)) / len(probed)


def others_share(manifest: Manifest) -> float | None:
    """Return the share of the time in which others had the broker's CPU."""
    return _share(manifest.runs_compared, "others_s")


def stolen_share(manifest: Manifest) -> float | None:
    """Return the share of the time that the host took from the broker's CPU."""
    return _share(manifest.runs_compared, "steal_s")


def _share(runs: Iterable[Run], name: str) -> float | None:
    told = [run for run in runs if name in run.machine]
    # Older recordings do not say for how long the kernel was asked.
    seconds = math.fsum(run.machine.get("watched_s", run.seconds) for run in told)
    if not seconds:
        return None
    return math.fsum(run.machine[name] for run in told) / seconds
