"""Rate of new connections, and the wait of the next one.

Follows Kafka's ``Rate`` over ``quota.window.num`` windows of
``quota.window.size.seconds``, and ``QuotaUtils.throttleTime``. A window begins with the
first connection that no window covers. The rate is taken over all windows but one, even
when the broker is younger: at first a burst of ten seconds' worth passes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

_NS_PER_S: Final = 1_000_000_000
_RESOLUTION_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The number and length of a rate's windows."""

    count: int = 11
    size_ns: int = _NS_PER_S


@dataclass(slots=True)
class _Window:
    """The connections that came from ``start_ns`` on."""

    start_ns: int
    connections: int = 0


class ConnectionRate:
    """Connections per second."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # The oldest first.
        self._samples: deque[_Window] = deque()

    def record(self, now_ns: int) -> None:
        """Count a connection in."""
        samples = self._samples
        if not samples or now_ns - samples[-1].start_ns >= self._windows.size_ns:
            samples.append(_Window(now_ns))
        samples[-1].connections += 1

    def per_s(self, now_ns: int) -> float:
        """Return the rate."""
        total, span_ns = self._measure(now_ns)
        return total * _NS_PER_S / span_ns

    def throttle_ns(self, bound_per_s: int, now_ns: int) -> int:
        """Return after how long the rate is back at its bound; a window at most."""
        total, span_ns = self._measure(now_ns)
        if total * _NS_PER_S <= bound_per_s * span_ns:
            return 0
        longest_ns = self._windows.size_ns
        if not bound_per_s:
            return longest_ns
        return min(total * _NS_PER_S // bound_per_s - span_ns, longest_ns)

    def _measure(self, now_ns: int) -> tuple[int, int]:
        """Return the connections remembered, and the time that they count for."""
        size_ns, count = self._windows.size_ns, self._windows.count
        samples = self._samples
        while samples and now_ns - samples[0].start_ns >= count * size_ns:
            samples.popleft()
        elapsed_ns = now_ns - samples[0].start_ns if samples else 0
        missing = max(count - 1 - elapsed_ns // size_ns, 0)
        total = sum(window.connections for window in samples)
        return total, max(elapsed_ns + missing * size_ns, _RESOLUTION_NS)
