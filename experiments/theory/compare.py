"""Prediction beside measurement: one row for each thing that theory knows of an arm.

Intervals are Student's over blocks, and wide enough that all rows of a table hold at
once with the probability that the experiment asks for (Bonferroni). A row *agrees* if
the prediction lies in its interval widened by ``tolerance`` of the prediction (of a
wait: of the time in system), which is for what closed forms idealise: an endless run,
and no request that waits for its own connection.
A live broker's service is measured, and its sockets are not in it: its rows are shown
and not judged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import t as student

from experiments.config import Experiment
from experiments.theory.measure import Block, pooled
from experiments.theory.predict import WORK_X_WAIT, Theory, theory

# A path identity is exact but for the floats in which a virtual clock counts.
PATHWISE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A prediction, the mean over blocks, and half the width of its interval.

    ``off`` is the error relative to what `predict.Prediction.scale` says.
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
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All rows, and what theory has nothing to say of: world, point, arm and why."""

    rows: Sequence[Row]
    silences: Sequence[tuple[str, str, str, str]]

    @property
    def agrees(self) -> bool:
        """Say whether no row that is judged differs from its prediction."""
        return all(row.agrees is not False for row in self.rows)


def compare(
    experiment: Experiment,
    world: str,
    point: str,
    blocks: Mapping[str, list[Block]],
    tolerance: float,
) -> Comparison:
    """Set theory beside the blocks of each arm, in one world and at one point."""
    said = {
        arm.name: theory(experiment, arm, world, pooled(blocks[arm.name]))
        for arm in experiment.arms
        if arm.name in blocks
    }
    count = sum(len(each.predictions) for each in said.values())
    level = 1 - experiment.analysis.alpha / max(1, count)
    rows = []
    for arm, each in said.items():
        for prediction in each.predictions:
            key = prediction.quantity, prediction.reported
            values = [block.values[key] for block in blocks[arm] if key in block.values]
            measured, half = interval(values, level)
            allowed = half + tolerance * prediction.scale
            agrees = abs(prediction.value - measured) <= allowed
            rows.append(
                Row(
                    world=world,
                    point=point,
                    arm=arm,
                    reported=prediction.reported,
                    quantity=prediction.quantity,
                    predicted=prediction.value,
                    measured=measured,
                    half=half,
                    off=(measured - prediction.value) / prediction.scale,
                    agrees=None if world == "live" else agrees,
                )
            )
    if world != "live":
        rows += _paths(world, point, said, blocks)
    silences = [
        (world, point, arm, reason)
        for arm, each in said.items()
        for reason in each.silences
    ]
    return Comparison(rows=rows, silences=silences)


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
    said: Mapping[str, Theory],
    blocks: Mapping[str, list[Block]],
) -> Iterable[Row]:
    """Compare the sum of size times wait, which such arms share on every path."""
    alike = [
        arm
        for arm, each in said.items()
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
            yield Row(
                world=world,
                point=point,
                arm=arm,
                reported="",
                quantity=f"sum of size x wait: off {alike[0]}'s",
                predicted=0.0,
                measured=max(apart),
                half=PATHWISE,
                off=max(apart),
                agrees=max(apart) <= PATHWISE,
            )
