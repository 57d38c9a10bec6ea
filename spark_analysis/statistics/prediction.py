"""The prediction interval of a deterministic world.

A simulated world gives the same answer to the same trace every time. With enough traces
any difference is significant, so it has no p-values. Its result is a prediction of the
mean log-ratio that an experiment of as many sessions would measure. Three sources make
it uncertain: the simulated traces, the measured traces, and the calibration, which is
common to all. Let ``s`` be the standard deviation over ``n`` sessions, ``m`` the number
of sessions to be measured, and ``c`` the standard error of the log-ratio due to the
calibration. The interval is ``mean +- t sqrt(s^2 (1/n + 1/m) + c^2)`` with n - 1
degrees of freedom (Hahn and Meeker, *Statistical Intervals*, 1991, section 4.7, for
``c`` = 0).
"""

from __future__ import annotations

import math

import numpy as np

from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.intervals import Estimate, student_t


def prediction_interval(
    log_ratios: FloatArray,
    confidence: float,
    calibration_error: float,
    *,
    same_traces: bool = False,
    measured: int | None = None,
) -> Estimate:
    """Return the mean of finite log-ratios, one per session, with its interval.

    ``measured`` sessions are predicted, by default as many as were simulated. With
    ``same_traces`` the variance counts once: the variance of the log-ratios contains
    that of the measurement.
    """
    count = len(log_ratios)
    mean = float(np.mean(log_ratios))
    if count < 2:
        return Estimate(mean, -math.inf, math.inf)
    shares = 1 / count + (0 if same_traces else 1 / (measured or count))
    variance = float(np.var(log_ratios, ddof=1)) * shares
    error = math.sqrt(variance + calibration_error**2)
    half = student_t(confidence, count - 1) * error
    return Estimate(mean, mean - half, mean + half)
