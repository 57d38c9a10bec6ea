"""Mean latencies relative to the baseline: predicted, and measured in every world.

A ratio of two arms does not depend on the machine's unit, so one prediction serves
worlds with different request costs. Theory models requests and servers, not sockets. A
real broker's time outside of its handlers is in both arms, and moves its ratio towards
1. All worlds are judged here, including live ones, within a margin that is fixed in
advance. A world *agrees* if the interval of its ratio lies within the margin about the
prediction, *differs* if it lies outside, and is *open* otherwise. Intervals are over
blocks, and hold for all rows of a world simultaneously.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from experiments.design.config import Experiment
from experiments.theory.compare import Verdict, interval, judge
from experiments.theory.measure import TrialMeasures, pooled
from experiments.theory.predict import MEAN_LATENCY, MEAN_WAIT, theory

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRow:
    """The mean latency of a class under an arm, relative to the baseline's.

    ``measured`` is the geometric mean over blocks, ``low`` and ``high`` the ends of its
    interval; an unbounded end is None.
    """

    world: str
    point: str
    arm: str
    reported: str
    predicted: float
    measured: float
    low: float | None
    high: float | None
    verdict: Verdict


def ratios(
    experiment: Experiment,
    world: str,
    point: str,
    blocks: Mapping[str, list[TrialMeasures]],
    margin: float,
) -> list[RatioRow]:
    """Return a row for every class and arm with both latencies predicted."""
    baseline = experiment.experiment.baseline
    means = {
        arm.name: _mean_latencies(experiment, arm.name, world, blocks[arm.name])
        for arm in experiment.arms
        if arm.name in blocks
    }
    base = means.get(baseline, {})
    expected = [
        (arm, name, latency / base[name])
        for arm, of_class in means.items()
        for name, latency in of_class.items()
        if arm != baseline and name in base
    ]
    level = 1 - experiment.analysis.alpha / max(1, len(expected))
    rows = []
    for arm, name, predicted in expected:
        logs = _log_ratios(blocks[arm], blocks[baseline], name)
        mean, half = interval(logs, level)
        bounded = math.isfinite(half)
        rows.append(
            RatioRow(
                world=world,
                point=point,
                arm=arm,
                reported=name,
                predicted=predicted,
                measured=math.exp(mean),
                low=math.exp(mean - half) if bounded else None,
                high=math.exp(mean + half) if bounded else None,
                verdict=judge(mean - math.log(predicted), half, math.log1p(margin)),
            )
        )
    return rows


def write(rows: Sequence[RatioRow], margin: float, summary: str, path: Path) -> None:
    """Write rows for the report of their worlds.

    ``summary`` summarises all predictions, including those that are no ratios.
    """
    content = {
        "schema": SCHEMA,
        "margin": margin,
        "said": summary,
        "ratios": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _mean_latencies(
    experiment: Experiment, arm: str, world: str, blocks: list[TrialMeasures]
) -> dict[str, float]:
    """Return the predicted mean latency of each class, in seconds."""
    found = theory(experiment, experiment.arm(arm), world, pooled(blocks))
    # Errors of a wait are relative to the time in system, which is the latency.
    return {
        it.reported: it.scale for it in found.predictions if it.quantity == MEAN_WAIT
    }


def _log_ratios(
    ours: list[TrialMeasures], base: list[TrialMeasures], name: str
) -> list[float]:
    key = (MEAN_LATENCY, name)
    return [
        math.log(mine.values[key] / theirs.values[key])
        for mine, theirs in zip(ours, base, strict=False)
        if key in mine.values and key in theirs.values
    ]
