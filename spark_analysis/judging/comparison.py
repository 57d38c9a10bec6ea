"""The comparison as plain values: what tables, figures, report and paper are made of.

Units are the reader's here: milliseconds and per second. Sequences are sorted (classes
in the config's order, the baseline first), so that the same recordings give the same
bytes whatever order Spark worked in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_analysis.judging.attribution import Attribution, Design
from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.group_functions import Contrast, Distribution
from spark_analysis.judging.metrics import Metric, headline_of
from spark_analysis.judging.run_values import Key, RunValue, values_by_block
from spark_analysis.judging.verdict import Measured, Verdict
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.paired_cost import PairedCost
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import Estimate

NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One class under one arm in one metric: measured, compared, judged.

    ``withheld`` says why the arm's own value must not be quoted, empty if it may be.
    ``distribution`` is that of all requests, among whose quantiles the metric is at
    ``quantile_index`` (None: goodput is none); ``pooled_ratio`` is the bootstrap's, of
    the pooled quantiles. Both are as Spark's groups returned them, in nanoseconds.
    """

    class_name: str
    arm: str
    metric: Metric
    distribution: Distribution
    quantile_index: int | None
    measured: Measured
    withheld: str
    contrast: Contrast | None
    pooled_ratio: Estimate | None
    verdict: Verdict

    @property
    def blocks(self) -> int:
        """How many blocks the arm was measured in."""
        return len(self.distribution.blocks)

    @property
    def refused(self) -> bool:
        """Whether nothing may be said: neither a value nor a difference."""
        return self.verdict.word == "refused"

    @property
    def decided(self) -> bool:
        """Whether a difference or sameness was found."""
        return self.verdict.word in ("better", "worse", "equivalent", "identical")

    @property
    def estimate(self) -> Estimate | None:
        """The value with its interval, None where it must not be quoted."""
        return None if self.withheld else self.measured.estimate

    @property
    def compared(self) -> Contrast | None:
        """The contrast, None for the baseline and where arms are not compared."""
        return self.contrast if self.verdict.compared else None

    @property
    def shown_contrast(self) -> Contrast | None:
        """The contrast as it is shown: nothing of a refused cell is."""
        return None if self.refused else self.compared


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The CCDF of one class under one arm: share of requests at or above each value.

    ``low`` and ``high`` bound each share over runs, one by one.
    """

    class_name: str
    arm: str
    latency_ms: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMeans:
    """Mean milliseconds in each phase, over answered requests.

    ``slowest`` tells whether they are all answered requests, or those at or beyond the
    headline quantile.
    """

    class_name: str
    arm: str
    slowest: bool
    requests: int
    means_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMoment:
    """The queue of one arm at one time, over blocks: requests in it and kept out."""

    arm: str
    t_s: float
    queued: float
    queued_low: float
    queued_high: float
    waiting: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a report of one experiment rests on, at one point.

    ``designs`` are the full two-level designs that the arms make, ``design_why`` says
    what is missing of those that they were meant to make.
    ``paired_costs`` are of the arms whose requests have a measured cost beside the
    baseline's. ``cell_sessions`` are all metrics by session, ``cpu_sessions`` the mean
    CPU per request.
    """

    manifest: Manifest
    metrics: tuple[Metric, ...]
    cells: tuple[Cell, ...]
    run_values: tuple[RunValue, ...]
    curves: tuple[Curve, ...]
    phases: tuple[PhaseMeans, ...]
    queue: tuple[QueueMoment, ...]
    paired_costs: tuple[PairedCost, ...]
    designs: tuple[Design, ...]
    design_why: str
    attributions: tuple[Attribution, ...]
    cell_sessions: tuple[CellSessions, ...] = ()
    cpu_sessions: tuple[CellSessions, ...] = ()

    @property
    def tail_metric(self) -> Metric:
        """The quantile beyond which a request counts among the slowest."""
        return headline_of(self.metrics)

    @property
    def headline(self) -> Metric:
        """The metric that is told first: p99, if the first class has an answer in it.

        Otherwise the highest quantile below it of which this is true.
        """
        highest = self.tail_metric
        for metric in reversed(self.metrics[: self.metrics.index(highest) + 1]):
            if self.shown(metric):
                return metric
        return highest

    def shown(self, metric: Metric) -> bool:
        """Whether the first class has an answer in a metric.

        That is, some rival that was decided on, or whose value may be quoted beside the
        baseline's; without rivals, a value.
        """
        first = self.class_names[0]
        base = self.cell(first, self.manifest.baseline, metric.name)
        rivals = [self.cell(first, arm, metric.name) for arm in self.rivals]
        if not rivals:
            return not base.withheld
        return any(
            cell.compared is not None
            and (cell.decided or not (cell.withheld or base.withheld))
            for cell in rivals
        )

    def typical(self, class_name: str, arm: str, metric: Metric) -> float:
        """Return the geometric mean over blocks of the runs' own values.

        The quotient of two arms' is the ratio that is told of them. Where some run's
        value is zero or infinite it is the median run's.
        """
        key = Key(class_name, arm)
        found = list(values_by_block(self.run_values, key, metric.name).values())
        if all(0 < value < math.inf for value in found):
            return math.exp(math.fsum(map(math.log, found)) / len(found))
        return sorted(found)[(len(found) - 1) // 2]

    @property
    def typical_of(self) -> str:
        """Of what `typical` is the value, in words: rounds have none of their own."""
        rounds = self.manifest.episodes is not None
        return "over all rounds" if rounds else "in a typical run"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Classes with requests in the window, the most important first."""
        present = {cell.class_name for cell in self.cells}
        ordered = [entry.name for entry in self.manifest.classes]
        return tuple(name for name in ordered if name in present)

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Compared arms, the baseline first."""
        return tuple(arm.name for arm in self.manifest.arms_compared)

    @property
    def rivals(self) -> tuple[str, ...]:
        """Arms that are neither the baseline nor its repetition."""
        return self.manifest.rivals

    @property
    def again(self) -> str | None:
        """The A/A arm, if there is one of the baseline."""
        return self.manifest.again

    def cell(self, class_name: str, arm: str, metric: str) -> Cell:
        """Return one cell.

        :raises KeyError: if there is none.
        """
        for cell in self.cells:
            if (cell.class_name, cell.arm, cell.metric.name) == (
                class_name,
                arm,
                metric,
            ):
                return cell
        raise KeyError((class_name, arm, metric))

    def attribution_told(self, design: Design, class_name: str) -> Attribution | None:
        """Return the attribution by which a class is told of a design.

        By the p99 or the highest quantile below it that all arms may show; by goodput
        where there is none.
        """
        highest = self.metrics.index(self.tail_metric)
        found = {
            of.metric.name: of
            for of in self.attributions
            if (of.design, of.class_name) == (design, class_name) and not of.why
        }
        order = [*reversed(self.metrics[: highest + 1]), self.metrics[-1]]
        return next((found[m.name] for m in order if m.name in found), None)

    def of_arm(self, arm: str) -> tuple[Cell, ...]:
        """Return the cells of one arm."""
        return tuple(cell for cell in self.cells if cell.arm == arm)


def display_order(manifest: Manifest) -> list[Key]:
    """Return every class under every compared arm in the order they are shown."""
    return [
        Key(entry.name, arm.name)
        for entry in manifest.classes
        for arm in manifest.arms_compared
    ]
