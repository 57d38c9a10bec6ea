"""The disk of one simulated broker, and what becomes of it when the broker stops.

`MemoryStorage` knows what was not flushed; here is when that matters. After a kill all
writes are there, since the operating system has them; after a loss of power what was
not flushed may be gone, torn or zeroed. A disk may be full for a while, may have those
wait who wait for it, and may fail a call, after which its broker has no directory.
"""

from __future__ import annotations

import random

import trio

from broker.cluster.blocking import call_here
from broker.disk.memory import MemoryStorage
from broker.log.steps import BlockingCall


class SimulatedDisk:
    """A disk that is carried from one incarnation of its broker to the next."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._answers_at_s = 0.0
        self.storage = MemoryStorage()

    async def blocking(self, call: BlockingCall) -> None:
        """Make a call of a handler's, as of a flush, once the disk answers."""
        if trio.current_time() < self._answers_at_s:
            await trio.sleep_until(self._answers_at_s)
        await call_here(call)

    def stall(self, until_s: float) -> None:
        """Answer nobody who waits before a moment of Trio's clock."""
        self._answers_at_s = until_s

    def fill_up(self) -> None:
        """Refuse all further writes as a full disk."""
        self.storage.fill_up()

    def make_room(self) -> None:
        """Accept writes again."""
        self.storage.capacity_bytes = None

    def fail(self) -> None:
        """Fail the next call that changes or syncs anything, if none has failed yet."""
        if not self.has_failed:
            self.storage.faults.fail_at = self.storage.faults.calls + 1

    def mend(self) -> None:
        """Fail nothing, if nothing has failed yet."""
        if not self.has_failed:
            self.storage.faults.fail_at = 0

    @property
    def is_to_fail(self) -> bool:
        """Return whether the next call is to fail, or one has failed."""
        return self.storage.faults.fail_at > 0

    @property
    def has_failed(self) -> bool:
        """Return whether it has failed a call of its broker's present incarnation."""
        return self.storage.faults.reached

    def outlive(self, *, power_fails: bool) -> None:
        """Become the next incarnation's disk; the last one keeps its own."""
        if power_fails:
            self.storage = self.storage.after_power_loss(self._rng)
        else:
            self.storage = self.storage.after_kill()
