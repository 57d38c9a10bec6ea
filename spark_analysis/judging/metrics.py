"""Compared metrics: latency quantiles, and goodput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from spark_analysis.recordings.contract import Options

GOODPUT: Final = "goodput_per_s"
CPU_US: Final = "cpu_us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number per class and arm. ``quantile`` is None for goodput.

    ``margin`` is the relative difference below which two arms count as the same.
    """

    name: str
    label: str
    unit: str
    quantile: Fraction | None
    margin: float

    @property
    def lower_is_better(self) -> bool:
        """Whether less is better: of all metrics but goodput."""
        return self.name != GOODPUT


def metrics_of(options: Options) -> tuple[Metric, ...]:
    """Return the metrics of an experiment: quantiles ascending, goodput last."""
    quantiles = [
        Metric(
            name=latency_name(quantile),
            label=_percent(quantile),
            unit="ms",
            quantile=quantile,
            margin=options.margin_latency,
        )
        for quantile in options.quantiles
    ]
    goodput = Metric(
        name=GOODPUT,
        label="goodput",
        unit="/s",
        quantile=None,
        margin=options.margin_goodput,
    )
    return (*quantiles, goodput)


def cpu_metric(options: Options) -> Metric:
    """Return the mean CPU per request, a result of measured worlds."""
    return Metric(
        name=CPU_US,
        label="CPU per request",
        unit="us",
        quantile=None,
        margin=options.margin_latency,
    )


def headline_of(metrics: Sequence[Metric]) -> Metric:
    """Return the headline metric: p99, or the quantile nearest to it."""
    quantiles = [metric for metric in metrics if metric.quantile is not None]
    return min(quantiles, key=lambda m: abs((m.quantile or 0) - Fraction(99, 100)))


def latency_name(quantile: Fraction) -> str:
    """Return the name of a quantile's metric: 0.999 becomes ``p99.9_ms``."""
    return f"{_percent(quantile)}_ms"


def _percent(quantile: Fraction) -> str:
    return f"p{float(quantile * 100):g}"
