"""CPU use of the broker: requests, housekeeping, the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.observation.busy_time import BusyTime
from broker.observation.metric import Metric
from planes import PlaneCore
from planes.cpu_ledger import CpuLedger

_NS_PER_S: Final = 1e9


class Accounts:
    """CPU billed while the broker served, and CPU used by its process.

    ``busy_time`` provides the process's clocks; None in virtual time. CPU of the loop's
    thread beyond the bills is the overhead of the *event loop*. Further CPU of the
    process was used by other threads, or by the kernel while the thread began to wait.
    """

    def __init__(
        self,
        planes: Sequence[PlaneCore],
        ledger: CpuLedger,
        busy_time: BusyTime | None,
    ) -> None:
        self._planes = planes
        self._ledger = ledger
        self._busy_time = busy_time
        self._began_ns = 0

    def begin(self) -> None:
        """Start the accounts, within a Trio run."""
        if self._busy_time is not None:
            self._began_ns = self._busy_time.cpu_ns()
            self._busy_time.begin(self._ledger)

    def totals(self) -> dict[str, int]:
        """Return CPU used and billed, in nanoseconds; empty in virtual time."""
        if self._busy_time is None:
            return {}
        requests_ns = sum(plane.attained_ns for plane in self._planes)
        housekeeping_ns = self._ledger.housekeeping_ns
        busy_ns = self._busy_time.busy_ns()
        return {
            "cpu_ns": self._busy_time.cpu_ns() - self._began_ns,
            "busy_ns": busy_ns,
            "requests_ns": requests_ns,
            "housekeeping_ns": housekeeping_ns,
            "loop_ns": max(busy_ns - requests_ns - housekeeping_ns, 0),
            **{
                f"housekeeping {kind}_ns": used_ns
                for kind, used_ns in sorted(self._ledger.by_kind_ns.items())
            },
        }

    def metrics(self) -> Iterator[Metric]:
        """Iterate over the bills of each plane and of housekeeping."""
        for plane in self._planes:
            yield _billed(f"plane {plane.name}", plane.attained_ns)
        yield _billed("housekeeping", self._ledger.housekeeping_ns)
        for kind, used_ns in sorted(self._ledger.by_kind_ns.items()):
            yield Metric(
                name="doorkeeper_housekeeping_seconds",
                kind="counter",
                value=used_ns / _NS_PER_S,
                labels={"of": kind},
                suffix="_total",
            )


def _billed(to: str, billed_ns: int) -> Metric:
    return Metric(
        name="doorkeeper_cpu_billed_seconds",
        kind="counter",
        value=billed_ns / _NS_PER_S,
        labels={"to": to},
        suffix="_total",
    )
