"""Rates over the last windows, measured as in Kafka's quotas.

Kafka's ``SampledStat``: a sample begins with the first value after the end of the
previous sample. It is kept while one of its events is within the last windows. The
rate of replication (``SimpleRate``) covers the time since the start of the oldest
sample, but at least one window. The rate of a client (``Rate``) covers at least all
windows but one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_MS_PER_S: Final = 1000
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The number and length of a rate's windows."""

    count: int = 11
    size_ms: int = _MS_PER_S

    @property
    def reach_ms(self) -> int:
        """Return the length of all windows together."""
        return self.count * self.size_ms


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    total: float = 0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0


class _Samples:
    """Values over the last windows. Cost: O(windows) per call."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows.count
        self._window_ms = windows.size_ms
        # One sample more than windows, as the oldest one may overlap them.
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value."""
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.total += value
        sample.last_ms = now_ms

    def _total(self, now_ms: int) -> tuple[float, int]:
        """Return the sum of the last windows, and the age of the oldest sample."""
        expired_ms = now_ms - self._windows * self._window_ms
        for sample in self._samples:
            if sample.last_ms <= expired_ms:
                sample.reset(now_ms)
        start_ms = min((each.start_ms for each in self._samples), default=now_ms)
        return sum(each.total for each in self._samples), now_ms - start_ms

    def _advance(self, now_ms: int) -> _Sample:
        """Begin a sample, which replaces the oldest if all exist."""
        self._current = (self._current + 1) % (self._windows + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]


class ByteRate(_Samples):
    """Bytes per second since the oldest sample began."""

    def per_s(self, now_ms: int) -> float:
        """Return the rate."""
        total, age_ms = self._total(now_ms)
        return total * _MS_PER_S / max(age_ms, self._window_ms)


class WindowedRate(_Samples):
    """A rate in which missing windows count as empty: Kafka's ``Rate``.

    A new rate admits a burst of the bound times all windows but one.
    """

    def measure(self, now_ms: int) -> tuple[float, int]:
        """Return the sum of the values, and the milliseconds that it covers."""
        total, age_ms = self._total(now_ms)
        missing = max(self._windows - 1 - age_ms // self._window_ms, 0)
        return total, max(age_ms + missing * self._window_ms, 1)

    def per_s(self, now_ms: int) -> float:
        """Return the rate."""
        total, span_ms = self.measure(now_ms)
        return total * _MS_PER_S / span_ms

    def delay_ms(self, bound: float, now_ms: int) -> int:
        """Return the delay after which the rate is back at ``bound`` per second."""
        total, span_ms = self.measure(now_ms)
        return delay_ms(total / (span_ms / _MS_PER_S), bound, span_ms)


class WindowedAverage:
    """The mean of the values of the last windows: Kafka's ``Avg``."""

    def __init__(self, windows: Windows) -> None:
        self._total = WindowedRate(windows)
        self._count = WindowedRate(windows)

    def record(self, value: float, now_ms: int) -> None:
        """Add a value."""
        self._total.record(value, now_ms)
        self._count.record(1, now_ms)

    def mean(self, now_ms: int) -> float | None:
        """Return the mean; None without values."""
        count, _ = self._count.measure(now_ms)
        return self._total.measure(now_ms)[0] / count if count else None


def delay_ms(rate: float, bound: float, span_ms: int) -> int:
    """Return the delay after which a rate over ``span_ms`` is back at its bound.

    For a bound of 0 or less, which no delay can meet, the result is ``span_ms``.
    """
    if rate <= bound:
        return 0
    if bound <= 0:
        return span_ms
    return math.floor(min((rate - bound) / bound * span_ms + 0.5, _INT_MAX))
