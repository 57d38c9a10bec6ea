"""A study: one experiment, compared at each point of its sweep.

Without a sweep there is one point, and the study is its comparison. Points without a
complete block (in an unfinished sweep) are left out and listed.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_analysis.judging.cells import Cell
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.levels import LevelRatio
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.pairs import PairCell
from spark_analysis.recordings.contract import Manifest, Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Every comparison of one experiment, in the order of the design.

    ``headline`` is the primary metric; ``levels`` are in it. ``capacities`` are over
    all points.
    """

    manifest: Manifest
    comparisons: tuple[Comparison, ...]
    pairs: tuple[PairCell, ...]
    levels: tuple[LevelRatio, ...]
    headline: Metric
    capacities: tuple[Cell, ...] = ()

    @property
    def swept(self) -> bool:
        """Whether the experiment is a sweep."""
        return bool(self.manifest.points[0].name)

    def folder(self, index: int) -> str:
        """Return the folder of a comparison's files, named like that of its runs."""
        if not self.swept:
            return ""
        point = self.comparisons[index].manifest.point
        return f"p{self.manifest.points.index(point):03d}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics, the same at every point."""
        return self.comparisons[0].metrics

    @property
    def points_missing(self) -> tuple[Point, ...]:
        """Points without a block in which every arm has a valid run."""
        there = {comparison.manifest.point.name for comparison in self.comparisons}
        return tuple(p for p in self.manifest.points if p.name not in there)

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """Factors that take more than one level, with their levels in design order."""
        return factors_of(self.manifest)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Classes with requests at any point, the most important first."""
        found: dict[str, None] = {}
        for comparison in self.comparisons:
            found.update(dict.fromkeys(comparison.class_names))
        return tuple(found)


def factors_of(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Return the factors of a sweep that vary, with their levels in design order."""
    found: dict[str, dict[str, None]] = {}
    for point in manifest.points:
        for factor, level in point.levels.items():
            found.setdefault(factor, {})[level] = None
    return {name: tuple(levels) for name, levels in found.items() if len(levels) > 1}
