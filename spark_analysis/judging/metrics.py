"""Compared metrics: latency quantiles, goodput, and further measures.

A metric is a definition: a formula over the recorded rows of a class under an arm, with
a unit and a direction. The same rules judge every metric session by session
(``cells``). `metrics_of` returns those of the comparison. `MEASURES` are further ones,
whose values ``measures`` computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from spark_analysis.recordings.contract import Options

GOODPUT: Final = "goodput_per_s"
CPU_US: Final = "cpu_us"
ATTAINMENT: Final = "attainment"
SLOWDOWN: Final = "slowdown"
STARVATION: Final = "starvation_ms"
JAIN: Final = "jain"
LAG: Final = "lag_ms"
RECOVERY: Final = "recovery_ms"
AREA: Final = "recovery_area_s"
CAPACITY: Final = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number per class and arm. ``quantile`` is None for all but quantiles.

    ``margin`` is the relative difference below which two arms are equivalent, and
    ``most`` the largest possible value.
    """

    name: str
    label: str
    unit: str
    quantile: Fraction | None
    margin: float
    lower_is_better: bool = True
    most: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Definition of a metric besides quantiles: its formula and its source.

    ``condition`` states where the metric exists, if not everywhere.
    """

    name: str
    label: str
    unit: str
    formula: str
    source: str
    condition: str = ""
    lower_is_better: bool = True
    most: float = math.inf

    def metric(self, options: Options) -> Metric:
        """Return the metric with the margin of an experiment."""
        return Metric(
            name=self.name,
            label=self.label,
            unit=self.unit,
            quantile=None,
            margin=options.margin_latency
            if self.lower_is_better
            else options.margin_goodput,
            lower_is_better=self.lower_is_better,
            most=self.most,
        )


_GOODPUT: Final = Measure(
    name=GOODPUT,
    label="goodput",
    unit="/s",
    formula="good answers / seconds; a request counts once, however often it was sent",
    source="latency, slo_ms",
    lower_is_better=False,
)
MEASURES: Final = (
    Measure(
        name=CPU_US,
        label="CPU per request",
        unit="us",
        formula="Σ service time / answered requests",
        source="service_ns",
        condition="brokers recorded it",
    ),
    Measure(
        name=ATTAINMENT,
        label="SLO attainment",
        unit="",
        formula="good answers / requests",
        source="latency, slo_ms",
        lower_is_better=False,
        most=1.0,
    ),
    Measure(
        name=SLOWDOWN,
        label="mean slowdown",
        unit="",
        formula="mean of latency / own service time, where that is above 0",
        source="latency, service_ns (Harchol-Balter 2013)",
        condition="brokers recorded it",
    ),
    Measure(
        name=STARVATION,
        label="starvation age",
        unit="ms",
        formula="largest unread + blocked + request queue + suspended time",
        source="phases",
        condition="brokers recorded it",
    ),
    Measure(
        name=JAIN,
        label="Jain's index",
        unit="",
        formula="mean over windows of (Σx)² / (n Σx²), x = service of a flow / its "
        "max-min fair share",
        source="flow, service_ns, local_done_ns (Jain, Chiu, Hawe 1984)",
        condition="fairness_window_ms is set, two flows wait",
        lower_is_better=False,
        most=1.0,
    ),
    Measure(
        name=LAG,
        label="service lag",
        unit="ms",
        formula="largest max-min fair share − service of a flow in a window",
        source="flow, service_ns, local_done_ns",
        condition="as Jain's index",
    ),
    Measure(
        name=RECOVERY,
        label="time to recover",
        unit="ms",
        formula="from a burst's end to the last request that misses slo_ms, mean over "
        "bursts; infinite if the interval's last does",
        source="intended_ns, latency",
        condition="recovery_s and slo_ms are set",
    ),
    Measure(
        name=AREA,
        label="area to recover",
        unit="request s",
        formula="Σ max(0, latency − slo_ms) after a burst, mean over bursts",
        source="latency",
        condition="as the time to recover",
    ),
    Measure(
        name=CAPACITY,
        label="capacity at the SLO",
        unit="load",
        formula="load at which the attainment first falls below slo_share, on a line "
        "between loads",
        source="attainment",
        condition="sweep.design is bisection (model, virtual)",
        lower_is_better=False,
    ),
)


def metrics_of(options: Options) -> tuple[Metric, ...]:
    """Return the compared metrics: quantiles ascending, goodput last."""
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
    return (*quantiles, _GOODPUT.metric(options))


def measures_of(options: Options) -> tuple[Metric, ...]:
    """Return the further metrics of an experiment."""
    return tuple(measure.metric(options) for measure in MEASURES)


def definitions() -> tuple[Measure, ...]:
    """Return the definitions of all metrics, as documented."""
    quantile = Measure(
        name="p50_ms, p95_ms, p99_ms, …",
        label="quantiles",
        unit="ms",
        formula="⌈np⌉-th smallest of n latencies",
        source="latency: client_done_ns − intended_ns",
    )
    return (quantile, _GOODPUT, *MEASURES)


def headline_of(metrics: Sequence[Metric]) -> Metric:
    """Return the headline metric: p99, or the quantile nearest to it."""
    quantiles = [metric for metric in metrics if metric.quantile is not None]
    return min(quantiles, key=lambda m: abs((m.quantile or 0) - Fraction(99, 100)))


def latency_name(quantile: Fraction) -> str:
    """Return the name of a quantile's metric: 0.999 becomes ``p99.9_ms``."""
    return f"{_percent(quantile)}_ms"


def _percent(quantile: Fraction) -> str:
    return f"p{float(quantile * 100):g}"
