"""The rules of judgement of an experiment, all stated before it ran."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from spark_analysis.judging.metrics import latency_name
from spark_analysis.recordings.contract import Manifest, Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of judgement for the cells of one point.

    ``again`` is the A/A arm. ``primary`` is the configured class and the name of its
    metric. ``calibration_error`` is None in a measured world; in a deterministic one it
    widens the prediction intervals.
    """

    baseline: str
    again: str | None
    primary: tuple[str, str]
    options: Options
    seed: int = 0
    calibration_error: float | None = None


def rules_of(manifest: Manifest) -> Rules:
    """Return the rules of an experiment."""
    primary = manifest.sessions.primary, latency_name(manifest.sessions.quantile)
    return Rules(
        baseline=manifest.baseline,
        again=manifest.again,
        primary=primary,
        options=manifest.options,
        seed=manifest.seed,
        calibration_error=calibration_error(manifest),
    )


def calibration_error(manifest: Manifest) -> float | None:
    """Return the standard error of a log-ratio due to the calibration of its world.

    The log-ratio is assumed to move by as much as the logarithm of each cost, and costs
    to err independently: the root of the sum of their squared relative standard errors.
    None in a measured world. Declared costs have no error.
    """
    if not manifest.deterministic:
        return None
    nominal = manifest.points[0].nominal or manifest.config.get("nominal") or {}
    z = float(ndtri(0.5 + (nominal.get("confidence") or 0.95) / 2))
    costs = [*(nominal.get("costs") or {}).values(), nominal.get("read") or {}]
    squares = [
        ((cost["high_us"] - cost["low_us"]) / (2 * z * cost["mean_us"])) ** 2
        for cost in costs
        if cost.get("low_us") is not None and cost.get("high_us") is not None
    ]
    return math.sqrt(math.fsum(squares))
