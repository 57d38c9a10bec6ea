"""What a clock is here: a function, handed in to whoever needs to know the time."""

from __future__ import annotations

from collections.abc import Callable

# Integer nanoseconds that never decrease, from an origin of the clock's own.
NowNs = Callable[[], int]
