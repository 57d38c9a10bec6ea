"""The comparison as plain values: what tables, figures, report and paper are made of.

Units are the reader's here: milliseconds and per second. Sequences are sorted (classes
in the config's order, the baseline first), so that the same recordings give the same
bytes whatever order Spark worked in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_analysis.attribution import Attribution, Design
from spark_analysis.contract import Manifest
from spark_analysis.metrics import Metric, headline_of
from spark_analysis.statistics import FloatArray
from spark_analysis.verdict import Contrast, Measured, Verdict, gate

NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1e9

# A class under an arm.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One class under one arm in one metric: measured, compared, judged."""

    class_name: str
    arm: str
    metric: Metric
    measured: Measured
    contrast: Contrast | None
    blocks: int
    verdict: Verdict

    @property
    def refused(self) -> bool:
        """Whether the number must not be shown."""
        return self.verdict.word == "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValue:
    """One class in one run: counts by outcome, and every metric's value by name."""

    class_name: str
    arm: str
    block: int
    counts: Mapping[str, int]
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The CCDF of one class under one arm: share of requests at or above each value."""

    class_name: str
    arm: str
    latency_ms: FloatArray
    share: FloatArray


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
class QueuePoint:
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

    ``design`` is None where the arms are no full two-level design, ``design_why`` the
    reason where they were meant to be one.
    """

    manifest: Manifest
    metrics: tuple[Metric, ...]
    cells: tuple[Cell, ...]
    run_values: tuple[RunValue, ...]
    curves: tuple[Curve, ...]
    phases: tuple[PhaseMeans, ...]
    queue: tuple[QueuePoint, ...]
    design: Design | None
    design_why: str
    attributions: tuple[Attribution, ...]

    @property
    def tail_metric(self) -> Metric:
        """The quantile beyond which a request counts among the slowest."""
        return headline_of(self.metrics)

    @property
    def headline(self) -> Metric:
        """The metric that is told first: p99, if the first class's may be shown.

        That is, under the baseline and some rival; otherwise the highest quantile
        below it of which this is true.
        """
        highest = self.tail_metric
        for metric in reversed(self.metrics[: self.metrics.index(highest) + 1]):
            if self.shown(metric):
                return metric
        return highest

    def shown(self, metric: Metric) -> bool:
        """Whether the first class's may be shown under the baseline and some rival."""
        first = self.class_names[0]
        base = self.cell(first, self.manifest.baseline, metric.name)
        rivals = [self.cell(first, arm, metric.name) for arm in self.rivals]
        return not base.refused and not all(cell.refused for cell in rivals)

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
            key = (cell.class_name, cell.arm, cell.metric.name)
            if key == (class_name, arm, metric):
                return cell
        raise KeyError((class_name, arm, metric))

    def gate(self, class_name: str, arm: str, metric: Metric) -> str:
        """Return why an arm's own number may not be shown, or an empty string."""
        cell = self.cell(class_name, arm, metric.name)
        return gate(metric, cell.measured, self.manifest.options)

    def of_arm(self, arm: str) -> tuple[Cell, ...]:
        """Return the cells of one arm."""
        return tuple(cell for cell in self.cells if cell.arm == arm)


def display_order(manifest: Manifest) -> list[Key]:
    """Return every class under every compared arm in the order they are shown."""
    return [
        (entry.name, arm.name)
        for entry in manifest.classes
        for arm in manifest.arms_compared
    ]
