"""The type of a clock: a function, handed in where the time is needed."""

from __future__ import annotations

from collections.abc import Callable

# Integer nanoseconds that never decrease, from an origin of the clock's own.
NowNs = Callable[[], int]
