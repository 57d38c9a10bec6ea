"""Recent rate of an event: the one-minute rate of Kafka's meters.

Kafka's meter (Yammer's ``EWMA``) is an average in which an event of a minute ago has
the weight 1/e, updated every five seconds. This rate is the same, computed when read.
"""

from __future__ import annotations

import math
from typing import Final

_TICK_NS: Final = 5_000_000_000
_TICK_S: Final = 5
_KEPT: Final = math.exp(-_TICK_S / 60)


class MinuteRate:
    """Events per second over about a minute, from ``now_ns`` on. Cost: O(1)."""

    __slots__ = ("_new", "_per_s", "_ticked_ns")

    def __init__(self, now_ns: int) -> None:
        self._ticked_ns = now_ns
        self._new = 0
        # None before the first tick, whose rate is the initial value.
        self._per_s: float | None = None

    def mark(self, now_ns: int) -> None:
        """Count one event."""
        self._tick(now_ns)
        self._new += 1

    def per_s(self, now_ns: int) -> float:
        """Return the rate at the last tick; 0 before the first."""
        self._tick(now_ns)
        return self._per_s or 0.0

    def _tick(self, now_ns: int) -> None:
        ticks = (now_ns - self._ticked_ns) // _TICK_NS
        if ticks <= 0:
            return
        self._ticked_ns += ticks * _TICK_NS
        seen_per_s, self._new = self._new / _TICK_S, 0
        before = self._per_s
        if before is not None:
            seen_per_s += _KEPT * (before - seen_per_s)
        # All ticks after the first had no events.
        self._per_s = seen_per_s * _KEPT ** (ticks - 1)
