"""Prediction and measurement: one row for each predicted quantity of an arm.

Intervals are Student's over blocks, with a level such that all rows of a table hold
simultaneously with the experiment's confidence (Bonferroni). Closed forms idealise (an
endless run, no request that waits for its own connection). A row is therefore compared
with the prediction within a margin, relative to the prediction (for a wait: to the time
in system). A row *agrees* if its interval lies inside the margin, *differs* if it lies
outside, and is *open* otherwise: an interval too wide to contradict shows no agreement.
For a broker on a real clock the measured service excludes its sockets; such rows are
shown and not judged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import t as student

from experiments.design.config import Experiment
from experiments.design.world_config import WORLDS
from experiments.theory.measure import TrialMeasures, pooled
from experiments.theory.predict import WORK_X_WAIT, Theory, theory

# A path identity is exact except for the rounding of floats in a virtual clock.
PATHWISE = 1e-9


Verdict = Literal["agrees", "differs", "open", "not judged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRow:
    """A prediction, the mean over blocks, and half the width of its interval.

    ``off`` is the error relative to `predict.Prediction.scale`.
    """

    world: str
    point: str
    arm: str
    reported: str
    quantity: str
    predicted: float
    measured: float
    half: float
    off: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The reason for an arm without predictions."""

    world: str
    point: str
    arm: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows, and the arms without predictions."""

    rows: Sequence[PredictionRow]
    silences: Sequence[Silence]

    @property
    def contradicted(self) -> bool:
        """Return whether some judged row differs from its prediction."""
        return any(row.verdict == "differs" for row in self.rows)


def compare(
    experiment: Experiment,
    world: str,
    point: str,
    blocks: Mapping[str, list[TrialMeasures]],
    margin: float,
) -> Comparison:
    """Compare theory with each arm's measurements by block, in a world at a point."""
    theories = {
        arm.name: theory(experiment, arm, world, pooled(blocks[arm.name]))
        for arm in experiment.arms
        if arm.name in blocks
    }
    count = sum(len(each.predictions) for each in theories.values())
    level = 1 - experiment.analysis.alpha / max(1, count)
    computed = WORLDS[world].computed
    rows = []
    for arm, each in theories.items():
        for prediction in each.predictions:
            key = prediction.quantity, prediction.reported
            values = [it.values[key] for it in blocks[arm] if key in it.values]
            measured, half = interval(values, level)
            found = judge(measured - prediction.value, half, margin * prediction.scale)
            rows.append(
                PredictionRow(
                    world=world,
                    point=point,
                    arm=arm,
                    reported=prediction.reported,
                    quantity=prediction.quantity,
                    predicted=prediction.value,
                    measured=measured,
                    half=half,
                    off=(measured - prediction.value) / prediction.scale,
                    verdict=found if computed else "not judged",
                )
            )
    if computed:
        rows += _paths(world, point, theories, blocks)
    silences = [
        Silence(world=world, point=point, arm=arm, reason=reason)
        for arm, each in theories.items()
        for reason in each.silences
    ]
    return Comparison(rows=rows, silences=silences)


def judge(error: float, half: float, margin: float) -> Verdict:
    """Return the verdict on an error with half-width ``half``, for a margin about 0."""
    if abs(error) + half <= margin:
        return "agrees"
    return "differs" if abs(error) - half > margin else "open"


def interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Return the mean and half the width of its Student interval."""
    if len(values) < 2:
        return (values[0] if values else math.nan), math.inf
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = float(student.ppf((1 + level) / 2, len(values) - 1)) * error
    return statistics.fmean(values), half


def _paths(
    world: str,
    point: str,
    theories: Mapping[str, Theory],
    blocks: Mapping[str, list[TrialMeasures]],
) -> Iterable[PredictionRow]:
    """Compare the sum of size times wait, which these arms share on every path."""
    alike = [
        arm
        for arm, each in theories.items()
        if any(it.quantity == WORK_X_WAIT for it in each.predictions)
    ]
    for arm in alike[1:]:
        pairs = zip(blocks[arm], blocks[alike[0]], strict=False)
        apart = [
            abs(ours.path - theirs.path) / theirs.path
            for ours, theirs in pairs
            if ours.path is not None and theirs.path
        ]
        if apart:
            yield PredictionRow(
                world=world,
                point=point,
                arm=arm,
                reported="",
                quantity=f"sum of size x wait: off {alike[0]}'s",
                predicted=0.0,
                measured=max(apart),
                half=PATHWISE,
                off=max(apart),
                verdict="agrees" if max(apart) <= PATHWISE else "differs",
            )
