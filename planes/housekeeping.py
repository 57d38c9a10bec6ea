"""CPU that is used for nobody's request: accepting, timers, upkeep, scrapes."""

from __future__ import annotations

from planes.clock import NowNs


class Housekeeping:
    """A class of its own that is billed like the others, but has no tasks.

    ``with housekeeping:`` around synchronous work bills it; work inside such work is
    billed once.

    >>> times = iter((5, 12))
    >>> housekeeping = Housekeeping(lambda: next(times))
    >>> with housekeeping, housekeeping:
    ...     pass
    >>> housekeeping.billed_ns
    7
    """

    def __init__(self, now_ns: NowNs) -> None:
        self.billed_ns = 0
        self._now_ns = now_ns
        self._depth = 0
        self._began_ns = 0

    def __enter__(self) -> None:
        if not self._depth:
            self._began_ns = self._now_ns()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.billed_ns += self._now_ns() - self._began_ns
