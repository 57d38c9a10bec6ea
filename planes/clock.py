"""The type of a clock: a function that is passed to each user of the time."""

from __future__ import annotations

from collections.abc import Callable

# Integer nanoseconds that never decrease, from an arbitrary origin.
NowNs = Callable[[], int]
