"""Space of log directories over time, in memory, and the days until a volume is full.

The used bytes of a volume are fitted by a line, by least squares over the samples of at
most `RETENTION_S`. The days are the free bytes divided by its slope. Retention deletes
whole segments, so used bytes follow a sawtooth; a span shorter than `SPAN_MIN_S` may
show only one tooth.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import linear_regression
from typing import Final, NamedTuple, Protocol

PERIOD_S: Final = 600.0
RETENTION_S: Final = 86_400.0
SPAN_MIN_S: Final = 1_800.0
DIRECTORIES_MAX: Final = 500
_DAY_S: Final = 86_400.0


class Directory(Protocol):
    """A log directory of a broker; unknown sizes are negative."""

    @property
    def broker_id(self) -> int:
        """Return the broker."""

    @property
    def path(self) -> str:
        """Return its path."""

    @property
    def total_bytes(self) -> int:
        """Return the size of its volume."""

    @property
    def usable_bytes(self) -> int:
        """Return the bytes that are free."""


class Usage(NamedTuple):
    """Used and free bytes of a volume at an instant of Trio's clock."""

    at_s: float
    used_bytes: int
    free_bytes: int


class DiskHistory:
    """The newest samples of each directory."""

    def __init__(self) -> None:
        self._samples: dict[tuple[int, str], deque[Usage]] = {}

    def record(self, now_s: float, directories: Iterable[Directory]) -> None:
        """Keep a sample of each directory with known sizes; drop old ones."""
        for key, kept in [*self._samples.items()]:
            while kept and kept[0].at_s < now_s - RETENTION_S:
                kept.popleft()
            if not kept:
                del self._samples[key]
        for it in directories:
            key = it.broker_id, it.path
            is_kept = key in self._samples or len(self._samples) < DIRECTORIES_MAX
            if is_kept and it.total_bytes > 0 and it.usable_bytes >= 0:
                used = it.total_bytes - it.usable_bytes
                usage = Usage(now_s, used, it.usable_bytes)
                self._samples.setdefault(key, deque()).append(usage)

    def days_left(self, broker_id: int, path: str) -> float | None:
        """Return the days until a volume is full, infinite if it is not filling.

        None without samples over `SPAN_MIN_S`.
        """
        return days_left([*self._samples.get((broker_id, path), ())])


def days_left(samples: list[Usage]) -> float | None:
    """Return the days from the newest sample until the volume is full.

    >>> days_left([Usage(0, 0, 96), Usage(1_800, 1, 95), Usage(3_600, 2, 94)])
    1.9583333333333333
    >>> days_left([Usage(0, 5, 5), Usage(3_600, 5, 5)])
    inf
    """
    if not samples or samples[-1].at_s - samples[0].at_s < SPAN_MIN_S:
        return None
    # Relative to the first sample: sums of squares of raw bytes would lose digits.
    first = samples[0]
    slope, _ = linear_regression(
        [it.at_s - first.at_s for it in samples],
        [it.used_bytes - first.used_bytes for it in samples],
    )
    if slope <= 0:
        return math.inf
    return samples[-1].free_bytes / slope / _DAY_S
