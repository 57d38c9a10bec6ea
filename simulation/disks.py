"""The disk of one simulated broker, and its state after the broker stops.

`MemoryStorage` tracks unflushed data. After a kill all writes remain, because the
operating system has them. After a power loss unflushed data may be missing, torn or
zeroed. A disk may be full for a while, may stall calls that wait for it, and may fail a
call, after which its broker has no log directory.
"""

from __future__ import annotations

import random

import trio

from broker.cluster.blocking import call_here
from broker.disk.memory import MemoryStorage
from broker.log.steps import BlockingCall


class SimulatedDisk:
    """A disk that outlives the incarnations of its broker."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._answers_at_s = 0.0
        self.storage = MemoryStorage()

    async def blocking(self, call: BlockingCall) -> None:
        """Make a handler's blocking call, such as a flush, when the disk responds."""
        if trio.current_time() < self._answers_at_s:
            await trio.sleep_until(self._answers_at_s)
        await call_here(call)

    def stall(self, until_s: float) -> None:
        """Delay all waiting calls until an instant of Trio's clock."""
        self._answers_at_s = until_s

    def fill_up(self) -> None:
        """Refuse all further writes, as a full disk does."""
        self.storage.fill_up()

    def make_room(self) -> None:
        """Accept writes again."""
        self.storage.capacity_bytes = None

    def fail(self) -> None:
        """Fail the next call that changes or syncs data, if none has failed yet."""
        if not self.has_failed:
            self.storage.faults.fail_at = self.storage.faults.calls + 1

    def mend(self) -> None:
        """Cancel the planned failure, if no call has failed yet."""
        if not self.has_failed:
            self.storage.faults.fail_at = 0

    @property
    def is_to_fail(self) -> bool:
        """Return whether the next call will fail, or a call has failed."""
        return self.storage.faults.fail_at > 0

    @property
    def has_failed(self) -> bool:
        """Return whether a call of the current incarnation has failed."""
        return self.storage.faults.reached

    def outlive(self, *, power_fails: bool) -> None:
        """Become the next incarnation's disk; the last incarnation keeps its state."""
        if power_fails:
            self.storage = self.storage.after_power_loss(self._rng)
        else:
            self.storage = self.storage.after_kill()
