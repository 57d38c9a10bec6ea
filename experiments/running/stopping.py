"""When there are rounds enough: the sequential rule, written before the experiment.

After each session the rule looks at all rounds that count. There are enough when the
interval of the primary quantile's ratio to the baseline is narrow enough for every arm
(Chow & Robbins 1965: intervals of fixed width keep their coverage, asymptotically, for
the width is nearly independent of where the interval lies). What it is told is widths:
whether the arms differ has no say in when to stop. Every look is listed in the
manifest. What the rule does to errors is simulated in
``tests/spark_analysis/test_round_values.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from experiments.design.config import Experiment

Latencies = npt.NDArray[np.float64]

GO_ON = "go on"
NARROW = "narrow enough"
TIME_UP = "time is up"
USED_UP = "all rounds are played"


class HalfWidth(Protocol):
    """How well a ratio of quantiles is known; statistics, and handed in."""

    def __call__(
        self,
        arm: Sequence[Latencies],
        baseline: Sequence[Latencies],
        level: Fraction,
        confidence: float,
    ) -> float:
        """Return half the length of the interval of the log-ratio, over rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the rule saw: rounds that count, and half-widths of log-ratios by arm.

    A half-width is None while there is no interval.
    """

    rounds: int
    half_widths: dict[str, float | None]
    decision: str

    def content(self) -> dict[str, Any]:
        """Return the look as the manifest lists it."""
        return asdict(self)


class Rule:
    """The sequential rule of one experiment, and the latencies that it looks at.

    Requests count that were meant to be sent at ``warmup_ns`` or later.
    """

    def __init__(
        self, experiment: Experiment, warmup_ns: int, half_width: HalfWidth
    ) -> None:
        assert experiment.episodes is not None
        self._episodes = experiment.episodes
        self._half_width = half_width
        self._class = experiment.primary_class
        self._warmup_ns = warmup_ns
        self._confidence = 1 - experiment.analysis.alpha
        arms = [arm.name for arm in experiment.all_arms()]
        self._baseline = experiment.experiment.baseline
        self._rivals = [
            arm.name for arm in experiment.arms if arm.name != self._baseline
        ]
        self._rounds: dict[str, dict[int, Latencies]] = {name: {} for name in arms}

    def add(self, table: pa.Table) -> None:
        """Take the rows of valid runs, of any arms and rounds."""
        wanted = table.filter(
            pc.and_(
                pc.equal(table["class"], self._class),
                pc.greater_equal(table["intended_ns"], self._warmup_ns),
            )
        )
        latency = latencies(wanted)
        block = wanted["block"].to_numpy()
        arm = wanted["arm"].combine_chunks().cast(pa.string()).to_numpy(False)
        for name in np.unique(arm):
            of_arm = arm == name
            for number in np.unique(block[of_arm]):
                here = of_arm & (block == number)
                self._rounds[name][int(number)] = latency[here]

    def look(self, *, played_all: bool, late: bool) -> Look:
        """Decide whether to go on; ``late`` if the time is up."""
        complete = sorted(set.intersection(*map(set, self._rounds.values())))
        found = {name: self._of_arm(name, complete) for name in self._rivals}
        limit = math.log1p(self._episodes.precision)
        enough = len(complete) >= self._episodes.rounds_min
        if enough and all(width <= limit for width in found.values()):
            decision = NARROW
        elif played_all:
            decision = USED_UP
        else:
            decision = TIME_UP if late else GO_ON
        widths = {
            name: round(width, 6) if math.isfinite(width) else None
            for name, width in found.items()
        }
        return Look(rounds=len(complete), half_widths=widths, decision=decision)

    def _of_arm(self, name: str, complete: Sequence[int]) -> float:
        if len(complete) < 2:
            return math.inf
        return self._half_width(
            [self._rounds[name][number] for number in complete],
            [self._rounds[self._baseline][number] for number in complete],
            Fraction(repr(self._episodes.quantile)),
            self._confidence,
        )


def latencies(table: pa.Table) -> Latencies:
    """Return the latency of each row in ns; infinite without a good answer."""
    done = table["client_done_ns"].fill_null(0).to_numpy()
    good = pc.equal(table["outcome"], "ok").to_numpy()
    found: Latencies = np.where(
        good, done - table["intended_ns"].to_numpy(), math.inf
    ).astype(np.float64)
    return found
