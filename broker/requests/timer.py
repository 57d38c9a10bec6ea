"""Timer for deadlines: sleeps until the earliest one."""

from __future__ import annotations

from collections.abc import Callable

import trio

from planes.clock import NowNs


class DeadlineTimer:
    """Calls ``expire(now_ns)`` whenever ``next_expiry_ns()`` has passed.

    Call ``moved`` when the next deadline has become earlier.
    """

    def __init__(
        self,
        next_expiry_ns: Callable[[], int | None],
        expire: Callable[[int], object],
        now_ns: NowNs,
    ) -> None:
        self._next_expiry_ns = next_expiry_ns
        self._expire = expire
        self._now_ns = now_ns
        self._lot = trio.lowlevel.ParkingLot()

    def moved(self) -> None:
        """Read the next deadline again."""
        self._lot.unpark()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            expiry_ns = self._next_expiry_ns()
            if expiry_ns is None:
                await self._lot.park()
                continue
            with trio.move_on_after(max(0, expiry_ns - self._now_ns()) / 1e9):
                await self._lot.park()
            self._expire(self._now_ns())
