"""CPU ledger of the event-loop thread: charges to requests and to housekeeping.

*Housekeeping* is CPU that is used for no request: accepting, timers, upkeep, scrapes.
It is billed like the classes of requests, but has no flows.
"""

from __future__ import annotations

from collections.abc import Mapping

from planes.clock import NowNs


class CpuLedger:
    """CPU ledger of the thread; every nanosecond up to ``until_ns`` has been charged.

    Where the event loop reports its waits (``spans``), the next charge starts at
    ``until_ns`` and not at the work itself. Loop overhead therefore goes to the work
    that follows it, and nothing is charged twice.

    ``with ledger.of("samples"):`` around synchronous work bills it to housekeeping,
    under that name. Nested work is billed once, to the outermost name.

    >>> times = iter((5, 12))
    >>> ledger = CpuLedger(lambda: next(times))
    >>> with ledger.of("samples"), ledger.of("scrapes"):
    ...     pass
    >>> ledger.housekeeping_ns, dict(ledger.by_kind_ns)
    (7, {'samples': 7, 'scrapes': 0})
    """

    def __init__(self, now_ns: NowNs) -> None:
        self.now_ns = now_ns
        self.until_ns = 0
        self.spans = False
        self._bills: dict[str, Bill] = {}
        # The bill of the work in progress.
        self.open: Bill | None = None

    def of(self, kind: str) -> Bill:
        """Return the bill of one kind of housekeeping, the same one each time."""
        bill = self._bills.get(kind)
        if bill is None:
            bill = self._bills[kind] = Bill(self)
        return bill

    def begin_ns(self) -> int:
        """Return the start time of a bill that is opened now."""
        if not self.spans:
            self.until_ns = self.now_ns()
        return self.until_ns

    @property
    def housekeeping_ns(self) -> int:
        """The CPU of all kinds of housekeeping."""
        return sum(bill.billed_ns for bill in self._bills.values())

    @property
    def by_kind_ns(self) -> Mapping[str, int]:
        """The CPU of each kind."""
        return {kind: bill.billed_ns for kind, bill in self._bills.items()}


class Bill:
    """CPU used by one kind of housekeeping."""

    __slots__ = ("_began_ns", "_ledger", "billed_ns")

    def __init__(self, ledger: CpuLedger) -> None:
        self._ledger = ledger
        self._began_ns: list[int] = []
        self.billed_ns = 0

    def __enter__(self) -> None:
        # Nested work is a part of the outermost bill.
        if self._ledger.open is None:
            self._ledger.open = self
            self._began_ns.append(self._ledger.begin_ns())
        else:
            self._began_ns.append(-1)

    def __exit__(self, *_: object) -> None:
        began_ns = self._began_ns.pop()
        if began_ns >= 0:
            ledger = self._ledger
            ledger.open = None
            ledger.until_ns = ended_ns = ledger.now_ns()
            self.billed_ns += ended_ns - began_ns
