"""One metric of one class under one arm, session by session.

Spark computes these values; the statistics need nothing else. A session is the unit of
replication: processes that started together, one per arm. Its value is the metric over
all requests of its rounds. The values over all sessions but one feed the jackknife.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.quantiles import nearest_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSessions:
    """Values of one metric of one class under one arm at one point.

    All sequences are parallel to ``sessions``, which ascend. A session without a
    request of the class is absent, except for goodput, which is 0 there. Values are in
    the metric's unit. An unanswered request has an infinite latency, so a quantile may
    be infinite.

    ``values``: the metric within each session. ``counts``: requests in each session.
    For quantiles only: ``pooled``, over all sessions; ``without``, over all sessions
    but this one, NaN if there is no other; ``exceedances``, the requests at or beyond
    the pooled quantile.
    """

    point: str
    class_name: str
    arm: str
    metric: str
    sessions: tuple[int, ...]
    values: tuple[float, ...]
    counts: tuple[int, ...]
    pooled: float = float("nan")
    without: tuple[float, ...] = ()
    exceedances: tuple[int, ...] = ()


def quantile_sessions(
    latencies: Mapping[int, FloatArray],
    level: Fraction,
    *,
    class_name: str = "control",
    arm: str = "fifo",
    metric: str = "p99_ms",
) -> CellSessions:
    """Return a quantile by session from the latencies of each session, in any order.

    The reference for Spark's two passes, and the source of simulated cells. Cost: one
    sort, then O(sessions x requests).
    """
    filled = {
        name: latencies[name] for name in sorted(latencies) if len(latencies[name])
    }
    pooled = np.concatenate(list(filled.values()))
    owner = np.repeat(list(filled), [len(each) for each in filled.values()])
    order = np.argsort(pooled)
    pooled, owner = pooled[order], owner[order]
    value = nearest_rank(pooled, level)
    first = int(np.searchsorted(pooled, value, "left"))
    return CellSessions(
        point="",
        class_name=class_name,
        arm=arm,
        metric=metric,
        sessions=tuple(filled),
        values=tuple(nearest_rank(pooled[owner == name], level) for name in filled),
        pooled=value,
        without=tuple(_rest(pooled[owner != name], level) for name in filled),
        counts=tuple(len(each) for each in filled.values()),
        exceedances=tuple(
            int(np.count_nonzero(owner[first:] == name)) for name in filled
        ),
    )


def _rest(ascending: FloatArray, level: Fraction) -> float:
    return nearest_rank(ascending, level) if len(ascending) else float("nan")
