"""Lag of groups over time, in memory, and its line in a chart.

A sample of every group is kept for `RETENTION_S`, and for `GROUPS_MAX` groups at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

PERIOD_S: Final = 30.0
RETENTION_S: Final = 10_800.0
GROUPS_MAX: Final = 500
WIDTH, HEIGHT = 600.0, 80.0
# A line is interrupted where samples are further apart.
_GAP_S: Final = 2.5 * PERIOD_S


class Sample(NamedTuple):
    """The lag of a group at an instant of Trio's clock."""

    at_s: float
    lag: int


class LagHistory:
    """The newest samples of each group."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}

    def record(self, now_s: float, lags: Mapping[str, int | None]) -> None:
        """Keep a sample of each group whose lag is known, and forget old samples."""
        for name, kept in [*self._samples.items()]:
            while kept and kept[0].at_s < now_s - RETENTION_S:
                kept.popleft()
            if not kept:
                del self._samples[name]
        for name, lag in lags.items():
            is_kept = name in self._samples or len(self._samples) < GROUPS_MAX
            if lag is not None and is_kept:
                self._samples.setdefault(name, deque()).append(Sample(now_s, lag))

    def of(self, group: str) -> Sequence[Sample]:
        """Return a group's samples, oldest first."""
        return [*self._samples.get(group, ())]


class Chart(NamedTuple):
    """Lines of a chart of `WIDTH` by `HEIGHT`, as points of SVG; its ends and scale."""

    lines: list[str]
    most: int
    minutes: int


def chart(samples: Sequence[Sample], now_s: float) -> Chart | None:
    """Return the line of samples from the oldest one to ``now_s``; None without two.

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

    lines = [" ".join(map(point, run)) for run in _runs(samples)]
    return Chart(lines, most, round(span_s / 60))


def _runs(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Return samples without gaps between them, together."""
    found: list[list[Sample]] = []
    for it in samples:
        if found and it.at_s - found[-1][-1].at_s <= _GAP_S:
            found[-1].append(it)
        else:
            found.append([it])
    return found
