"""What is compared: latency quantiles, and goodput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from spark_analysis.recordings.contract import Options

GOODPUT = "goodput_per_s"


class Compared(Protocol):
    """What arms are compared in: its name, and what counts as the same."""

    @property
    def name(self) -> str:
        """The name of a run's value."""

    @property
    def margin(self) -> float:
        """The relative difference below which two arms count as the same."""


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
        """Latency should fall, goodput should rise."""
        return self.quantile is not None


def metrics_of(options: Options) -> tuple[Metric, ...]:
    """Return the metrics of an experiment, quantiles in ascending order, goodput last.

    0.999 becomes ``p99.9_ms``.
    """
    quantiles = [
        Metric(
            name=f"{_percent(quantile)}_ms",
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


def headline_of(metrics: Sequence[Metric]) -> Metric:
    """Return the metric that is told first: p99, or the quantile nearest to it."""
    quantiles = [metric for metric in metrics if metric.quantile is not None]
    return min(quantiles, key=lambda m: abs((m.quantile or 0) - Fraction(99, 100)))


def _percent(quantile: Fraction) -> str:
    return f"p{float(quantile * 100):g}"
