"""Bytes per second of the last windows, as Kafka measures them for its quotas.

Kafka's ``SimpleRate`` over a ``WindowedSum`` (``SampledStat``): a sample begins with
the first bytes after the one before was full, and lives as long as one of its events
lies within the last windows. The rate is taken over the time since the oldest sample
began, and over a window at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MS_PER_S: Final = 1000


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    total: int = 0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0


class ByteRate:
    """A rate over ``windows`` windows of ``window_ms``. Cost: O(windows) per call."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        # One more than windows: the oldest one still reaches into them.
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, count: int, now_ms: int) -> None:
        """Count bytes in."""
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.total += count
        sample.last_ms = now_ms

    def per_s(self, now_ms: int) -> float:
        """Return the rate."""
        expired_ms = now_ms - self._windows * self._window_ms
        for sample in self._samples:
            if sample.last_ms <= expired_ms:
                sample.reset(now_ms)
        start_ms = min((each.start_ms for each in self._samples), default=now_ms)
        elapsed_ms = max(now_ms - start_ms, self._window_ms)
        return sum(each.total for each in self._samples) * _MS_PER_S / elapsed_ms

    def _advance(self, now_ms: int) -> _Sample:
        """Begin a sample, in place of the oldest if there are enough."""
        self._current = (self._current + 1) % (self._windows + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]
