"""How late requests were sent, beside the difference that was found of them."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from spark_analysis.judging.comparison import Comparison
from spark_analysis.recordings.contract import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late requests of a class were sent, beside the difference that was found.

    In milliseconds: the p99 of a typical run under the arm or the baseline, whichever
    was later, and the difference of both arms' values of the headline.
    """

    class_name: str
    arm: str
    late_ms: float
    effect_ms: float


def latenesses(comparison: Comparison) -> list[Lateness]:
    """Return the lateness of each class and rival whose difference can be told."""
    metric, baseline = comparison.headline, comparison.manifest.baseline
    found = []
    for name in comparison.class_names:
        base = comparison.cell(name, baseline, metric.name).measured.estimate.value
        of_base = _typical_late_ms(comparison.manifest, name, baseline)
        for arm in comparison.rivals:
            cell = comparison.cell(name, arm, metric.name)
            late = _typical_late_ms(comparison.manifest, name, arm)
            effect_ms = abs(cell.measured.estimate.value - base)
            if late is None or of_base is None or not math.isfinite(effect_ms):
                continue
            found.append(
                Lateness(
                    class_name=name,
                    arm=arm,
                    late_ms=max(late, of_base),
                    effect_ms=effect_ms,
                )
            )
    return found


def _typical_late_ms(manifest: Manifest, class_name: str, arm: str) -> float | None:
    late = [
        run.lateness_p99_by_class_ns[class_name]
        for run in manifest.runs_compared
        if run.arm == arm and class_name in run.lateness_p99_by_class_ns
    ]
    return statistics.median(late) / 1e6 if late else None
