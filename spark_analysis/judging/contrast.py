"""One arm against another in one metric of one class, over paired sessions.

All comparisons are made by `contrast_of`: arms against the baseline, pairs of arms, and
worlds. Its values are the log-ratios of the sessions. Where the tail of a session is
too thin for the quantile they are the jackknife's values of the log-ratio of the pooled
quantiles. Tests and intervals take both alike (``statistics.paired``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.metrics import Metric
from spark_analysis.recordings.contract import Options
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.exceedance import Tail, tail_of_sessions
from spark_analysis.statistics.intervals import Estimate, log_ratio_interval
from spark_analysis.statistics.paired import jackknife_values, paired_p, tost
from spark_analysis.statistics.prediction import prediction_interval
from spark_analysis.statistics.ratios import log_ratio, ratio_of

# With fewer effective exceedances a session's own quantile is nearly its maximum, which
# grows with the length of a session and is no estimate of the quantile.
SESSION_EXCEEDANCES_MIN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The ratio of an arm to another with its interval, and what tests say of it.

    ``logs`` are the log-ratios by session, or the jackknife's if they are ``pooled``.
    ``p`` belongs to "the arms do not differ", ``p_same`` to "they differ by more than
    the margin". Both are None in a deterministic world, where the interval is a
    prediction interval.
    """

    logs: Mapping[int, float]
    pooled: bool
    ratio: Estimate
    p: float | None
    p_same: float | None

    @property
    def values(self) -> FloatArray:
        """The values of the sessions, ascending by session."""
        return np.array(list(self.logs.values()))


def contrast_of(
    arm: CellSessions,
    base: CellSessions,
    metric: Metric,
    options: Options,
    *,
    seed: int = 0,
    calibration_error: float | None = None,
) -> Contrast:
    """Compare an arm with another over the sessions that both have.

    ``calibration_error`` is the standard error of the log-ratio by the calibration: the
    world is a deterministic one.
    """
    logs, pooled = paired_logs(arm, base, metric)
    values = np.array(list(logs.values()))
    if calibration_error is not None:
        predicted = prediction_interval(values, options.confidence, calibration_error)
        return Contrast(
            logs=logs, pooled=pooled, ratio=ratio_of(predicted), p=None, p_same=None
        )
    return Contrast(
        logs=logs,
        pooled=pooled,
        ratio=ratio_of(log_ratio_interval(values, options.confidence)),
        p=paired_p(values, seed),
        p_same=tost(values, metric.margin),
    )


def paired_logs(
    arm: CellSessions, base: CellSessions, metric: Metric
) -> tuple[dict[int, float], bool]:
    """Return the value of each session that both arms have, and whether pooled."""
    mine = dict(zip(arm.sessions, arm.values, strict=True))
    theirs = dict(zip(base.sessions, base.values, strict=True))
    own = {
        session: log_ratio(value, theirs[session])
        for session, value in mine.items()
        if session in theirs
    }
    if not _thin_sessions(metric, arm, base) or arm.sessions != base.sessions:
        return own, False
    pooled = log_ratio(arm.pooled, base.pooled)
    without = np.array(list(map(log_ratio, arm.without, base.without)))
    if not (math.isfinite(pooled) and np.all(np.isfinite(without))):
        return own, False
    values = jackknife_values(pooled, without)
    return dict(zip(arm.sessions, values.tolist(), strict=True)), True


def tail_of(cell: CellSessions, metric: Metric) -> Tail | None:
    """Return the tail beyond the pooled quantile; None where there is no quantile."""
    if metric.quantile is None:
        return None
    return tail_of_sessions(cell.counts, cell.exceedances, metric.quantile)


def _thin_sessions(metric: Metric, *cells: CellSessions) -> bool:
    """Whether some session has too few effective exceedances for its own quantile."""
    if metric.quantile is None:
        return False
    for cell in cells:
        tail = tail_of_sessions(cell.counts, cell.exceedances, metric.quantile)
        least = min(cell.counts) * float(1 - metric.quantile) / tail.vif
        if least < SESSION_EXCEEDANCES_MIN:
            return True
    return False
