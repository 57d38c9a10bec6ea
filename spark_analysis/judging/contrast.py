"""One arm against another in one metric of one class, over paired sessions.

`contrast_of` makes all comparisons: arms against the baseline, pairs of arms, and
worlds. Its values are the log-ratios of the sessions. If the tail of a session is too
thin for the quantile, they are the jackknife's values of the log-ratio of the pooled
quantiles. Tests and intervals treat both alike (``statistics.paired``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.rules import Rules
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
    """The ratio of an arm to another with its interval, and the results of tests.

    ``logs`` are the log-ratios by session, or the jackknife's if they are ``pooled``.
    ``p`` tests "the arms do not differ", ``p_same`` "they differ by more than the
    margin". Both are None in a deterministic world, where the interval is a prediction
    interval.
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
    arm: CellSessions, base: CellSessions, metric: Metric, rules: Rules
) -> Contrast:
    """Compare an arm with another over the sessions that both have."""
    logs, pooled = paired_logs(arm, base, metric)
    return contrast_from(logs, metric.margin, rules, pooled=pooled)


def contrast_from(
    logs: Mapping[int, float], margin: float, rules: Rules, *, pooled: bool = False
) -> Contrast:
    """Return the contrast from the values of sessions."""
    values = np.array(list(logs.values()))
    confidence, error = rules.options.confidence, rules.calibration_error
    ratio = ratio_of(log_ratio_interval(values, confidence))
    if error is not None:
        if np.all(np.isfinite(values)):
            ratio = ratio_of(prediction_interval(values, confidence, error))
        return Contrast(logs=logs, pooled=pooled, ratio=ratio, p=None, p_same=None)
    return Contrast(
        logs=logs,
        pooled=pooled,
        ratio=ratio,
        p=paired_p(values, rules.seed),
        p_same=tost(values, margin),
    )


def adjust(
    contrasts: Sequence[Contrast], rule: Callable[[FloatArray], FloatArray]
) -> list[Contrast]:
    """Return contrasts with their p-values adjusted as one family.

    Contrasts of a deterministic world have no p-values and are unchanged.
    """
    with_p = [it for it in contrasts if it.p is not None]
    p, same = (
        iter(rule(np.array([getattr(it, name) for it in with_p])).tolist())
        for name in ("p", "p_same")
    )
    return [
        it if it.p is None else replace(it, p=next(p), p_same=next(same))
        for it in contrasts
    ]


def paired_logs(
    arm: CellSessions, base: CellSessions, metric: Metric
) -> tuple[dict[int, float], bool]:
    """Return the value of each session of both arms, and whether it is pooled."""
    # A session without a request has no value to compare.
    counted = zip(arm.sessions, arm.values, arm.counts, strict=True)
    mine = {session: value for session, value, count in counted if count}
    theirs = dict(zip(base.sessions, base.values, strict=True))
    own = {
        session: log_ratio(value, theirs[session])
        for session, value in mine.items()
        if session in theirs
    }
    if arm.sessions != base.sessions or not is_thin(metric, arm, base):
        return own, False
    values = pooled_logs(arm) - pooled_logs(base)
    if not np.all(np.isfinite(values)):
        return own, False
    return dict(zip(arm.sessions, values.tolist(), strict=True)), True


def session_logs(cell: CellSessions) -> FloatArray:
    """Return the logarithms of the sessions' own values."""
    with np.errstate(divide="ignore"):
        logs: FloatArray = np.log(np.array(cell.values, dtype=np.float64))
    return logs


def pooled_logs(cell: CellSessions) -> FloatArray:
    """Return the jackknife's values of the logarithm of the pooled quantile.

    NaN if the quantile is infinite, or would be without some session.
    """
    values = np.array([cell.pooled, *cell.without])
    if not (np.all(values > 0) and np.all(np.isfinite(values))):
        return np.full(len(cell.sessions), math.nan)
    return jackknife_values(math.log(cell.pooled), np.log(values[1:]))


def tail_of(cell: CellSessions, metric: Metric) -> Tail | None:
    """Return the tail beyond the pooled quantile; None without a quantile."""
    if metric.quantile is None:
        return None
    return tail_of_sessions(cell.counts, cell.exceedances, metric.quantile)


def is_thin(metric: Metric, *cells: CellSessions) -> bool:
    """Return whether a session has too few exceedances for a quantile of its own."""
    if metric.quantile is None:
        return False
    for cell in cells:
        tail = tail_of_sessions(cell.counts, cell.exceedances, metric.quantile)
        least = min(cell.counts) * float(1 - metric.quantile) / tail.vif
        if least < SESSION_EXCEEDANCES_MIN:
            return True
    return False
