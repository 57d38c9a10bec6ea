"""The comparison as plain values: the content of tables, figures, report and paper.

Units are those of the report: milliseconds and per second. Sequences are sorted
(classes in the config's order, the baseline first), so that equal recordings give equal
bytes for any order of Spark's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.cells import Cell, CellKey
from spark_analysis.judging.design_effects import DesignEffects
from spark_analysis.judging.metrics import Metric, headline_of
from spark_analysis.judging.rules import Rules
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.paired_cost import PairedCost
from spark_analysis.statistics import FloatArray

NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1e9


class Key(NamedTuple):
    """A class under an arm."""

    class_name: str
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The CCDF of one class under one arm: share of requests at or above each value.

    ``low`` and ``high`` bound each share over runs, pointwise.
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

    ``slowest`` is False for all answered requests, True for those at or beyond the
    headline quantile.
    """

    class_name: str
    arm: str
    slowest: bool
    requests: int
    means_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMoment:
    """The queue of one arm at one time, over blocks: queued and blocked requests."""

    arm: str
    t_s: float
    queued: float
    queued_low: float
    queued_high: float
    waiting: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The report's values of one experiment at one point.

    ``cells`` are judged from ``sessions``, which has every metric by session;
    ``measures`` are the cells of further metrics, if any. ``paired_costs`` compare the
    cost of identical requests. ``effects`` are those of the arms' two-level designs.
    """

    manifest: Manifest
    metrics: tuple[Metric, ...]
    rules: Rules
    sessions: Mapping[CellKey, CellSessions]
    cells: tuple[Cell, ...]
    measures: tuple[Cell, ...] = ()
    effects: tuple[DesignEffects, ...] = ()
    curves: tuple[Curve, ...] = ()
    phases: tuple[PhaseMeans, ...] = ()
    queue: tuple[QueueMoment, ...] = ()
    paired_costs: tuple[PairedCost, ...] = ()

    @property
    def primary_metric(self) -> Metric:
        """The configured metric; the nearest to p99 if the analysis lacks it."""
        name = self.rules.primary[1]
        chosen = [metric for metric in self.metrics if metric.name == name]
        return chosen[0] if chosen else headline_of(self.metrics)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Classes with requests in the window, in the config's order."""
        present = {cell.class_name for cell in self.cells}
        ordered = [entry.name for entry in self.manifest.classes]
        return tuple(name for name in ordered if name in present)

    @property
    def rivals(self) -> tuple[str, ...]:
        """Arms that are neither the baseline nor its repetition."""
        return self.manifest.rivals

    @property
    def again(self) -> str | None:
        """The A/A arm of the baseline, if there is one."""
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


def display_order(manifest: Manifest) -> list[Key]:
    """Return every class under every compared arm, in display order."""
    return [
        Key(entry.name, arm.name)
        for entry in manifest.classes
        for arm in manifest.arms_compared
    ]
