"""Lag of groups over time, in memory, and its line in a chart.

Samples are kept for `RETENTION_S`, for at most `GROUPS_MAX` groups. A sample takes 16
bytes, so all samples take at most 3 MB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

PERIOD_S: Final = 30.0
RETENTION_S: Final = 10_800.0
GROUPS_MAX: Final = 500
WIDTH, HEIGHT = 600.0, 80.0
# Largest lag in eight bytes. Brokers may report any offsets, and lags are sums of them.
_LAG_MAX: Final = 2**63 - 1


class Sample(NamedTuple):
    """The lag of a group at an instant of Trio's clock."""

    at_s: float
    lag: int


class _Samples(NamedTuple):
    """Samples of a group, oldest first, as two columns."""

    at_s: array[float]
    lags: array[int]


class LagHistory:
    """The newest samples of each group; ``period_s`` is the sampling interval."""

    def __init__(self) -> None:
        self.period_s = PERIOD_S
        self._samples: dict[str, _Samples] = {}

    def record(self, now_s: float, lags: Mapping[str, int | None]) -> None:
        """Keep a sample of each group with a known lag; drop old samples."""
        for name, kept in [*self._samples.items()]:
            old = bisect_left(kept.at_s, now_s - RETENTION_S)
            del kept.at_s[:old], kept.lags[:old]
            if not kept.at_s:
                del self._samples[name]
        for name, lag in lags.items():
            is_kept = name in self._samples or len(self._samples) < GROUPS_MAX
            if lag is not None and is_kept:
                kept = self._samples.setdefault(name, _Samples(array("d"), array("q")))
                kept.at_s.append(now_s)
                kept.lags.append(min(max(lag, -_LAG_MAX), _LAG_MAX))

    def of(self, group: str) -> Sequence[Sample]:
        """Return a group's samples, oldest first."""
        kept = self._samples.get(group)
        return [] if kept is None else [*map(Sample, *kept)]


class Chart(NamedTuple):
    """Lines of a chart of `WIDTH` by `HEIGHT`, as points of SVG; its scale and span."""

    lines: list[str]
    most: int
    minutes: int


def chart(
    samples: Sequence[Sample], now_s: float, period_s: float = PERIOD_S
) -> Chart | None:
    """Return the line of samples from the oldest one to ``now_s``; None without two.

    The line is interrupted where samples are further apart than 2.5 periods.

    >>> chart([Sample(0, 0), Sample(30, 5), Sample(60, 10)], 60)
    Chart(lines=['0.0,80.0 300.0,40.0 600.0,0.0'], most=10, minutes=1)
    """
    if len(samples) < 2:
        return None
    start_s = samples[0].at_s
    most = max(1, *(it.lag for it in samples))
    span_s = max(now_s - start_s, PERIOD_S)

    def point(it: Sample) -> str:
        x = WIDTH * (it.at_s - start_s) / span_s
        return f"{x:.1f},{HEIGHT * (1 - max(it.lag, 0) / most):.1f}"

    lines = [" ".join(map(point, run)) for run in _runs(samples, 2.5 * period_s)]
    return Chart(lines, most, round(span_s / 60))


def _runs(samples: Iterable[Sample], gap_s: float) -> list[list[Sample]]:
    """Return runs of samples without gaps."""
    found: list[list[Sample]] = []
    for it in samples:
        if found and it.at_s - found[-1][-1].at_s <= gap_s:
            found[-1].append(it)
        else:
            found.append([it])
    return found
