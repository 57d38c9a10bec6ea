"""A timer for deadlines: sleeps until the earliest of them, and no longer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from planes.clock import NowNs

# Parks a task until it is unparked, but not beyond a moment of Trio's clock.
ParkUntil: TypeAlias = Callable[[trio.lowlevel.ParkingLot, float], Awaitable[None]]


async def park_until(lot: trio.lowlevel.ParkingLot, until_s: float) -> None:
    """Park until unparked, but not beyond a moment of Trio's clock."""
    with trio.move_on_at(until_s):
        await lot.park()


class DeadlineTimer:
    """Calls ``expire(now_ns)`` whenever ``next_expiry_ns()`` has passed.

    ``moved`` must be called when the next deadline has come nearer. ``park_until`` is
    that of a virtual clock, if it has a cheaper one.
    """

    def __init__(
        self,
        next_expiry_ns: Callable[[], int | None],
        expire: Callable[[int], object],
        now_ns: NowNs,
        park_until: ParkUntil = park_until,
    ) -> None:
        self._next_expiry_ns = next_expiry_ns
        self._expire = expire
        self._now_ns = now_ns
        self._park_until = park_until
        self._lot = trio.lowlevel.ParkingLot()

    def moved(self) -> None:
        """Look at the next deadline again."""
        self._lot.unpark()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            expiry_ns = self._next_expiry_ns()
            if expiry_ns is None:
                await self._lot.park()
                continue
            wait_s = max(0, expiry_ns - self._now_ns()) / 1e9
            await self._park_until(self._lot, trio.current_time() + wait_s)
            self._expire(self._now_ns())
