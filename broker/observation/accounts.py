"""Whose the broker's CPU was: its requests', housekeeping's, or unaccounted for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.observation.metric import Metric
from planes import PlaneCore
from planes.clock import NowNs
from planes.housekeeping import Housekeeping

_NS_PER_S: Final = 1e9


class Accounts:
    """What was billed since this was made, beside the CPU that the process has used.

    ``cpu_ns`` is the process's CPU clock; where time is virtual there is none. What it
    has beyond the bills is the event loop's own, and that of threads.
    """

    def __init__(
        self,
        planes: Sequence[PlaneCore],
        housekeeping: Housekeeping,
        cpu_ns: NowNs | None,
    ) -> None:
        self._planes = planes
        self._housekeeping = housekeeping
        self._cpu_ns = cpu_ns
        self._began_ns = 0 if cpu_ns is None else cpu_ns()

    def totals(self) -> dict[str, int]:
        """Return what was used and billed, in nanoseconds; nothing in virtual time."""
        if self._cpu_ns is None:
            return {}
        return {
            "cpu_ns": self._cpu_ns() - self._began_ns,
            "requests_ns": sum(plane.attained_ns for plane in self._planes),
            "housekeeping_ns": self._housekeeping.billed_ns,
        }

    def metrics(self) -> Iterator[Metric]:
        """Iterate over the bills of each plane and of housekeeping."""
        for plane in self._planes:
            yield _billed(f"plane {plane.name}", plane.attained_ns)
        yield _billed("housekeeping", self._housekeeping.billed_ns)


def _billed(to: str, billed_ns: int) -> Metric:
    return Metric(
        name="doorkeeper_cpu_billed_seconds",
        kind="counter",
        value=billed_ns / _NS_PER_S,
        labels={"to": to},
        suffix="_total",
    )
