"""Purgatory: requests that wait without a handler, for followers, data or a group.

Follows Kafka's ``DelayedOperationPurgatory``. An operation is watched under keys (a
partition, a group). A change under a key calls `Purgatory.check_and_complete`. The
operation then checks only that key, so the cost does not depend on its number of keys.
At its deadline the operation expires. It completes exactly once in both cases, and then
calls ``wake``. A parked handler (``planes.slices.parked``) then continues through its
scheduler.

An operation may have a hundred thousand keys. A handler therefore enters the purgatory,
watches its keys and leaves them in steps within its own turns (`DelayedOperation`). It
tries each key after it watches all of them. `Purgatory.watch` does all this at once,
for few keys.

Differences from Kafka: there is one thread, so there are no shards and no
compare-and-set. A completed operation leaves its timer at once and its keys soon, so
nothing has to be purged. The timer is a wheel of 1 ms ticks, as in Kafka, but with one
level: a bucket is a dictionary entry, and empty ticks do not exist.

If operations are tried in their own turns (``tries_here=False``), a change only records
the key and wakes them. The handler then tries the recorded keys, and parks again if
none completes it. The work is therefore billed to the operation, can be preempted, and
is done in the order of its scheduler. The price is a pass through the scheduler for
each unsuccessful try. The change only wakes the operations, in pieces if there are many
(`Purgatory.completing`).

An exception of an operation affects only that operation: it is woken with the error
(`Delayed.on_failure`), and the change continues.

Pure module: it reads no clock and waits for nothing; callers pass the time to `expire`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Hashable, Iterable
from logging import getLogger
from typing import Any, Final, Protocol

logger = getLogger(__name__)

TICK_NS: Final = 1_000_000
_TICKS_KEPT: Final = 1024
# Operations that are tried or woken in one piece: a fifth of a millisecond.
PIECE: Final = 64

Wake = Callable[[], None]


class Delayed(Protocol):
    """A waiting operation: Kafka's ``DelayedOperation`` without its bookkeeping."""

    def try_key(self, key: Any, /) -> bool:
        """Check the condition under ``key``; True if nothing is left to wait for.

        Called for every key, and again after each change under a key. The operation may
        still be incomplete then.
        """

    def on_expiration(self) -> None:
        """Handle the deadline before completion; called at most once.

        If operations are tried by the change itself, this precedes ``wake``.
        """

    def on_failure(self) -> None:
        """Handle an exception of `try_key`; the operation is not tried again."""


class DelayedOperation:
    """An operation in a purgatory; completes once, by `complete`."""

    __slots__ = (
        "_keys",
        "_purgatory",
        "_wake",
        "changed",
        "completed",
        "delayed",
        "tick",
    )

    def __init__(self, purgatory: Purgatory, delayed: Delayed, tick: int) -> None:
        self.delayed = delayed
        self.tick = tick
        self.completed = False
        # Changed keys that its own handler has to try.
        self.changed: dict[Hashable, None] = {}
        self._keys: dict[Hashable, None] = {}
        self._purgatory = purgatory
        self._wake: Wake | None = None

    @property
    def keys(self) -> Collection[Hashable]:
        """The keys under which the operation is watched."""
        return self._keys

    def watch(self, key: Hashable) -> None:
        """Watch changes under ``key`` from now on."""
        self._keys[key] = None
        self._purgatory.watchers.setdefault(key, {})[self] = None

    def park(self, wake: Wake) -> bool:
        """Register ``wake`` for one call.

        False if the operation can continue already.
        """
        if self.completed or self.changed:
            return False
        self._wake = wake
        return True

    def note_change(self, key: Hashable) -> bool:
        """Try or record a changed key.

        Return whether the operation completed or woke.
        """
        if self.completed:
            return False
        if self._purgatory.tries_here:
            return self.try_key(key)
        self.changed[key] = None
        return self._rouse()

    def try_key(self, key: Hashable) -> bool:
        """Check one key; complete the operation if nothing is left to wait for."""
        if self.completed:
            return False
        try:
            if not self.delayed.try_key(key):
                return False
        except Exception:
            logger.exception("a delayed operation failed")
            self.delayed.on_failure()
        return self.complete()

    def complete(self) -> bool:
        """Complete the operation unconditionally; False if it was complete."""
        if self.completed:
            return False
        self.completed = True
        self._purgatory.remove(self)
        self._rouse()
        return True

    def leaving(self) -> Generator[None]:
        """Complete the operation if needed, and leave its keys, in pieces."""
        self.complete()
        keys, watchers = self._keys, self._purgatory.watchers
        while keys:
            key, _ = keys.popitem()
            watching = watchers[key]
            del watching[self]
            if not watching:
                del watchers[key]
            if not len(keys) % PIECE and keys:
                yield

    def leave(self) -> None:
        """Leave all keys at once, as `leaving` does in pieces."""
        for _ in self.leaving():
            pass

    def _rouse(self) -> bool:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()
        return wake is not None


class Purgatory:
    """The waiting operations of one kind, by key and by deadline.

    ``name`` is that of Kafka (Produce, Fetch, Rebalance ...), for the metrics
    ``PurgatorySize`` and ``ExpiresPerSec``. ``on_earlier_deadline`` is called when
    `next_expiry_ns` has become earlier, so that a timer can be reset. If ``tries_here``
    is false, any change wakes the operations, and they try themselves.

    Cost: watching and leaving O(1) per key; a check O(watchers of the key).
    """

    def __init__(
        self,
        name: str,
        on_earlier_deadline: Callable[[], None] = lambda: None,
        *,
        tries_here: bool = True,
    ) -> None:
        self.name = name
        self.tries_here = tries_here
        self.expired_total = 0
        self._on_earlier_deadline = on_earlier_deadline
        # Operations by key, including completed ones that have not left the key yet.
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._buckets: dict[int, dict[DelayedOperation, None]] = {}
        self._ticks: list[int] = []
        # Number of waiting operations: Kafka's ``NumDelayedOperations``.
        self.size = 0

    def enter(self, delayed: Delayed, deadline_ns: int) -> DelayedOperation:
        """Add ``delayed`` with its deadline, without any watched key."""
        tick = -(-deadline_ns // TICK_NS)
        operation = DelayedOperation(self, delayed, tick)
        self.size += 1
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket[operation] = None
            return operation
        self._buckets[tick] = {operation: None}
        heapq.heappush(self._ticks, tick)
        if self._ticks[0] == tick:
            self._on_earlier_deadline()
        return operation

    def watch(
        self,
        delayed: Delayed,
        keys: Iterable[Hashable],
        deadline_ns: int,
        wake: Wake,
    ) -> DelayedOperation | None:
        """Try ``delayed``, and watch it under ``keys`` if it is not complete.

        Returns None if it completed at once; then ``wake`` is never called. Follows
        Kafka's ``tryCompleteElseWatch``. For few keys, if operations are tried by the
        change itself.
        """
        assert self.tries_here, self.name
        operation = self.enter(delayed, deadline_ns)
        for key in dict.fromkeys(keys):
            if operation.try_key(key):
                operation.leave()
                return None
            operation.watch(key)

        def leave_and_wake() -> None:
            operation.leave()
            wake()

        operation.park(leave_and_wake)
        return operation

    def check_and_complete(self, key: Hashable) -> int:
        """Try all operations under ``key``; return the number completed or woken."""
        watchers = self.watchers.get(key)
        if watchers is None:
            return 0
        return sum([operation.note_change(key) for operation in tuple(watchers)])

    def are_many(self, key: Hashable) -> bool:
        """Return whether more operations wait under ``key`` than fit in a piece."""
        return len(self.watchers.get(key, ())) > PIECE

    def completing(self, key: Hashable) -> Generator[None]:
        """Try all operations under ``key``, in pieces."""
        for number, operation in enumerate(tuple(self.watchers.get(key, ())), 1):
            operation.note_change(key)
            if not number % PIECE:
                yield

    def next_expiry_ns(self) -> int | None:
        """Return the earliest deadline, rounded up to a tick; None if none waits."""
        ticks = self._ticks
        while ticks and not self._buckets[ticks[0]]:
            del self._buckets[heapq.heappop(ticks)]
        return ticks[0] * TICK_NS if ticks else None

    def expire(self, now_ns: int) -> int:
        """Complete some operations whose deadline has passed; return their number.

        If more remain, `next_expiry_ns` is still in the past.
        """
        expired = 0
        while (
            expired < PIECE
            and (expiry_ns := self.next_expiry_ns()) is not None
            and expiry_ns <= now_ns
        ):
            bucket = self._buckets[self._ticks[0]]
            operation = next(iter(bucket))
            try:
                operation.delayed.on_expiration()
            finally:
                # Otherwise it would block later operations for ever.
                operation.complete()
            expired += 1
        self.expired_total += expired
        return expired

    def remove(self, operation: DelayedOperation) -> None:
        """Remove a completed operation from the timer."""
        self.size -= 1
        del self._buckets[operation.tick][operation]
        if len(self._ticks) > 2 * self.size + _TICKS_KEPT:
            self._drop_empty_ticks()

    def _drop_empty_ticks(self) -> None:
        """Remove empty ticks, which would accumulate for distant deadlines."""
        self._buckets = {tick: ops for tick, ops in self._buckets.items() if ops}
        self._ticks = sorted(self._buckets)

    def check(self) -> None:
        """Assert that keys, timer and count are consistent."""
        timed = {operation for bucket in self._buckets.values() for operation in bucket}
        watched = {op for watchers in self.watchers.values() for op in watchers}
        assert len(timed) == self.size, (len(timed), self.size)
        # Completed operations leave their keys in their own turns.
        assert all(each.completed for each in watched - timed), watched - timed
        for operation in watched:
            for key in operation.keys:
                assert operation in self.watchers[key], (key, operation)
        assert all(self.watchers.values()), "a key without watchers is kept"
        assert not any(operation.completed for operation in timed)
        assert sorted(self._ticks) == sorted(self._buckets)
