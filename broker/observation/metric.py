"""The common type of metric samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from broker.observation.histogram import Histogram

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A sample; ``kind`` is the Prometheus type of its family."""

    name: str
    kind: str
    value: float
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    suffix: str = ""


# Items of a source: samples, and None as points at which other tasks may run.
Samples: TypeAlias = Iterable[Metric | None]
# Number of objects that a source reads between two such points.
PIECE: Final = 32
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999)


def summary(
    name: str, labels: Mapping[str, str], histogram: Histogram, unit: float
) -> Iterator[Metric]:
    """Iterate over the quantiles, the count and the sum of a histogram, in ``unit``."""
    for q in _QUANTILES:
        yield Metric(
            name=name,
            kind="summary",
            value=histogram.quantile(q) / unit,
            labels={**labels, "quantile": str(q)},
        )
    for suffix, value in (("_count", histogram.count), ("_sum", histogram.sum / unit)):
        yield Metric(
            name=name, kind="summary", value=value, labels=labels, suffix=suffix
        )
