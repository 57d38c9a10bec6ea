"""Values by session of the metrics besides quantiles and goodput.

The first pass over the requests has the sums of most (``recordings.tally``): a value is
a function of the runs of a session. NaN marks an undefined value, and the session then
lacks the metric. Fairness and recovery need separate passes, and are measured only if
the config asks for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.comparison import NS_PER_MS
from spark_analysis.judging.metrics import (
    AREA,
    ATTAINMENT,
    CPU_US,
    JAIN,
    LAG,
    RECOVERY,
    SLOWDOWN,
    STARVATION,
)
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.fairness import fairness
from spark_analysis.recordings.latency_histogram import CELL, GroupKey
from spark_analysis.recordings.recovery import recoveries
from spark_analysis.recordings.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Value = Callable[[Sequence[Tally]], float]


def cpu_us(runs: Sequence[Tally]) -> float:
    """Return the mean service time of answered requests."""
    return _quotient(sum(it.cpu_ns for it in runs) / 1e3, _costed(runs))


def attainment(runs: Sequence[Tally]) -> float:
    """Return the share of requests with a good answer within their objective."""
    return _quotient(sum(it.good for it in runs), sum(it.sent for it in runs))


def slowdown(runs: Sequence[Tally]) -> float:
    """Return the mean of latency over service time."""
    if _costed(runs) and _is_unanswered(runs):
        return math.inf
    return _quotient(sum(it.slowdown for it in runs) / 1e3, _costed(runs))


def starvation_ms(runs: Sequence[Tally]) -> float:
    """Return the longest wait."""
    waits_ns = [it.waited_ns for it in runs if it.waited_ns is not None]
    if not waits_ns:
        return math.nan
    return math.inf if _is_unanswered(runs) else max(waits_ns) / NS_PER_MS


_OF_TALLIES: Final[Mapping[str, Value]] = {
    CPU_US: cpu_us,
    ATTAINMENT: attainment,
    SLOWDOWN: slowdown,
    STARVATION: starvation_ms,
}


# Columns of a pass, and the nanoseconds per unit.
_OF_FAIRNESS: Final = {JAIN: ("jain", 1.0), LAG: ("lag_ns", 1e6)}
_OF_RECOVERY: Final = {RECOVERY: ("recovery_ns", 1e6), AREA: ("area_ns", 1e9)}


def cells_of_tallies(
    point: str, key: GroupKey, runs: Sequence[Tally]
) -> Iterator[CellSessions]:
    """Yield every metric of one class under one arm that is a function of its runs."""
    by_session: dict[int, list[Tally]] = {}
    for run in sorted(runs, key=lambda it: it.session):
        by_session.setdefault(run.session, []).append(run)
    counts = {name: sum(it.sent for it in of) for name, of in by_session.items()}
    for metric, value in _OF_TALLIES.items():
        values = {name: value(of) for name, of in by_session.items()}
        yield from measure_cell(point, key, metric, values, counts)


def cells_of_passes(
    spark: SparkSession,
    requests: DataFrame,
    manifest: Manifest,
    tallies: Sequence[Tally],
) -> Iterator[tuple[int, CellSessions]]:
    """Yield every metric that has a separate pass, with the index of its point."""
    options = manifest.options
    counts: Counter[tuple[GroupKey, int]] = Counter()
    for run in tallies:
        key = GroupKey(run.point_index, run.class_name, run.arm)
        counts[key, run.session] += run.sent
    passes = []
    if options.fairness_window_ms is not None:
        passes.append((fairness(requests), _OF_FAIRNESS))
    if options.recovery_s:
        passes.append((recoveries(spark, requests, manifest), _OF_RECOVERY))
    for frame, metrics in passes:
        found: dict[GroupKey, dict[int, Mapping[str, float]]] = {}
        for row in frame.toArrow().to_pylist():
            key = GroupKey(*(row[name] for name in CELL))
            # A session with requests in the warm-up only has no row in the window.
            if counts[key, row["session"]]:
                found.setdefault(key, {})[row["session"]] = row
        for key, rows in sorted(found.items()):
            of_session = {name: counts[key, name] for name in rows}
            for metric, (column, unit_ns) in metrics.items():
                values = {name: row[column] / unit_ns for name, row in rows.items()}
                point = manifest.points[key.point_index].name
                for cell in measure_cell(point, key, metric, values, of_session):
                    yield key.point_index, cell


def measure_cell(
    point: str,
    key: GroupKey,
    metric: str,
    values: Mapping[int, float],
    counts: Mapping[int, int],
) -> Iterator[CellSessions]:
    """Yield the cell of the sessions with the metric, if there are any."""
    found = {name: of for name, of in sorted(values.items()) if not math.isnan(of)}
    if found:
        yield CellSessions(
            point=point,
            class_name=key.class_name,
            arm=key.arm,
            metric=metric,
            sessions=tuple(found),
            values=tuple(found.values()),
            counts=tuple(counts[name] for name in found),
        )


def _costed(runs: Sequence[Tally]) -> int:
    return sum(it.costed for it in runs)


def _is_unanswered(runs: Sequence[Tally]) -> bool:
    """Return whether some request has no good answer."""
    return any(it.counts["ok"] < it.sent for it in runs)


def _quotient(above: float, below: float) -> float:
    return above / below if below else math.nan
