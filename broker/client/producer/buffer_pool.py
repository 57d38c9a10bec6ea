"""The memory of a producer's batches: the free amount, and the waiting requests.

Kafka's ``BufferPool``. Requests are served in order, regardless of their sizes, so that
small records cannot starve a large one. The pool counts bytes; Python allocates them.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import trio

from broker.client.retriable_errors import timed_out


class _Waiter(NamedTuple):
    size: int
    granted: trio.Event


class BufferPool:
    """A pool of ``total`` bytes."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self._waiting: deque[_Waiter] = deque()

    @property
    def queued(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def try_allocate(self, size: int) -> bool:
        """Allocate ``size`` bytes if they are free and no request is waiting."""
        if self._waiting or size > self.available:
            return False
        self.available -= size
        return True

    async def allocate(self, size: int, until_s: float) -> None:
        """Allocate ``size`` bytes, in turn; raises `KafkaError` after ``until_s``.

        A cancelled call allocates nothing.
        """
        assert size <= self.total, f"{size} bytes of {self.total}"
        if self.try_allocate(size):
            return
        waiter = _Waiter(size, trio.Event())
        self._waiting.append(waiter)
        try:
            with trio.move_on_at(until_s):
                await waiter.granted.wait()
        except BaseException:
            # Cancelled: bytes granted meanwhile go to the next waiter.
            self._give_up(waiter)
            raise
        if not waiter.granted.is_set():
            self._give_up(waiter)
            raise timed_out(f"no {size} bytes of buffer memory came free")

    def deallocate(self, size: int) -> None:
        """Return ``size`` bytes to the pool."""
        self.available += size
        assert self.available <= self.total, "more was given back than taken"
        self._grant()

    def _give_up(self, waiter: _Waiter) -> None:
        if waiter.granted.is_set():
            self.deallocate(waiter.size)
        else:
            self._waiting.remove(waiter)
            # The removed waiter may have blocked smaller ones.
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self._waiting[0].size <= self.available:
            waiter = self._waiting.popleft()
            self.available -= waiter.size
            waiter.granted.set()
