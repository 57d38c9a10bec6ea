"""Waiting place of requests without a handler: for followers, for data, for a group.

Mirrors Kafka's ``DelayedOperationPurgatory``. An operation is watched under keys (a
partition, a group). A change under a key calls `Purgatory.check_and_complete`, and the
operation looks at that key again, and at no other: its cost does not depend on its
number of keys. At its deadline it expires. It completes exactly once, either way, and
then calls ``wake``, which for a parked handler (``planes.slices.parked``) means that it
goes on through its scheduler.

An operation may have a hundred thousand keys. So a handler enters the purgatory,
watches its keys and leaves them in steps of its own turns (`DelayedOperation`); it
tries each key once it watches all of them. `Purgatory.watch` does all that at once, for
few keys.

Differences from Kafka: one thread, so there are no shards and no compare-and-set; a
completed operation leaves its timer at once and its keys soon, so there is nothing to
purge. The timer is a wheel of 1 ms ticks, as Kafka's is, but in one level: a bucket is
a dictionary entry and empty ticks do not exist.

Where operations are tried in their own turns (``tries_here=False``), a change only
notes the key and wakes them. The handler then tries the noted keys, and parks again if
none completes it. The work is thus billed to the operation, can be preempted, and comes
in the order of its scheduler; the price is a pass through the scheduler for each vain
try. The change does no more than wake them, in pieces if they are many
(`Purgatory.completing`).

An exception of an operation is its own: it is woken with the error
(`Delayed.on_failure`), and the change goes on.

Pure: no clock is read and nothing waits here; `expire` is given the time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Hashable, Iterable
from logging import getLogger
from typing import Any, Final, Protocol

logger = getLogger(__name__)

TICK_NS: Final = 1_000_000
_TICKS_KEPT: Final = 1024
# Operations that are tried, or woken, in one piece: a fifth of a millisecond.
PIECE: Final = 64

Wake = Callable[[], None]


class Delayed(Protocol):
    """A waiting operation: Kafka's ``DelayedOperation`` without its bookkeeping."""

    def try_key(self, key: Any, /) -> bool:
        """Look at what waits under ``key``; True once there is nothing to wait for.

        It is called for every key, and again whenever something changed under one,
        perhaps in vain.
        """

    def on_expiration(self) -> None:
        """Note that the deadline came first; called at most once.

        Where operations are tried by the change itself, that is before ``wake``.
        """

    def on_failure(self) -> None:
        """Note that trying it has failed; it is not tried again, and woken next."""


class DelayedOperation:
    """One stay in a purgatory; completes once, by `complete`."""

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
        # Keys that its own handler is to try.
        self.changed: dict[Hashable, None] = {}
        self._keys: dict[Hashable, None] = {}
        self._purgatory = purgatory
        self._wake: Wake | None = None

    @property
    def keys(self) -> Collection[Hashable]:
        """The keys under which it is watched."""
        return self._keys

    def watch(self, key: Hashable) -> None:
        """Watch changes under ``key`` from now on."""
        self._keys[key] = None
        self._purgatory.watchers.setdefault(key, {})[self] = None

    def park(self, wake: Wake) -> bool:
        """Register ``wake`` for one call; False if there is something to do already."""
        if self.completed or self.changed:
            return False
        self._wake = wake
        return True

    def note_change(self, key: Hashable) -> bool:
        """Try one key, or have it tried; return whether that completed or woke it."""
        if self.completed:
            return False
        if self._purgatory.tries_here:
            return self.try_key(key)
        self.changed[key] = None
        return self._rouse()

    def try_key(self, key: Hashable) -> bool:
        """Complete the operation if it has nothing left to wait for under any key."""
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
        """Complete the operation whatever its condition; False if it was complete."""
        if self.completed:
            return False
        self.completed = True
        self._purgatory.forget(self)
        self._rouse()
        return True

    def leaving(self) -> Generator[None]:
        """Complete it, if it is not, and leave its keys, in pieces."""
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
        """Do as `leaving`, at once."""
        for _ in self.leaving():
            pass

    def _rouse(self) -> bool:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()
        return wake is not None


class Purgatory:
    """The operations of one kind that wait, by key and by deadline.

    ``name`` is Kafka's (Produce, Fetch, Rebalance ...), for the metrics
    ``PurgatorySize`` and ``ExpiresPerSec``. ``on_earlier_deadline`` is called when
    `next_expiry_ns` has moved towards the present, so that a timer can be set anew.
    Unless ``tries_here``, operations are woken by any change, and tried by their own.

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
        # By key; of those that have completed, some are still leaving theirs.
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._buckets: dict[int, dict[DelayedOperation, None]] = {}
        self._ticks: list[int] = []
        # Number of waiting operations: Kafka's ``NumDelayedOperations``.
        self.size = 0

    def enter(self, delayed: Delayed, deadline_ns: int) -> DelayedOperation:
        """Add ``delayed`` with its deadline; it watches no key so far."""
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

        Returns None if it completed at once; then ``wake`` is never called. This is
        Kafka's ``tryCompleteElseWatch``, for few keys, where operations are tried by
        the change itself.
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
        """Try all operations that watch ``key``; return how many completed or woke."""
        watchers = self.watchers.get(key)
        if watchers is None:
            return 0
        return sum([operation.note_change(key) for operation in tuple(watchers)])

    def are_many(self, key: Hashable) -> bool:
        """Return whether more operations wait under ``key`` than fit in a piece."""
        return len(self.watchers.get(key, ())) > PIECE

    def completing(self, key: Hashable) -> Generator[None]:
        """Do as `check_and_complete`, in pieces."""
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
        """Complete a piece of those whose deadline has passed; return how many.

        If there are more, `next_expiry_ns` has passed still.
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
                # Else it would be the first that is due for ever.
                operation.complete()
            expired += 1
        self.expired_total += expired
        return expired

    def forget(self, operation: DelayedOperation) -> None:
        """Take a completed operation off its timer."""
        self.size -= 1
        del self._buckets[operation.tick][operation]
        if len(self._ticks) > 2 * self.size + _TICKS_KEPT:
            self._drop_empty_ticks()

    def _drop_empty_ticks(self) -> None:
        """Forget ticks that have emptied; else far deadlines would pile up."""
        self._buckets = {tick: ops for tick, ops in self._buckets.items() if ops}
        self._ticks = sorted(self._buckets)

    def check(self) -> None:
        """Assert that keys, timer and count agree."""
        timed = {operation for bucket in self._buckets.values() for operation in bucket}
        watched = {op for watchers in self.watchers.values() for op in watchers}
        assert len(timed) == self.size, (len(timed), self.size)
        # Those that have completed leave their keys in turns of their own.
        assert all(each.completed for each in watched - timed), watched - timed
        for operation in watched:
            for key in operation.keys:
                assert operation in self.watchers[key], (key, operation)
        assert all(self.watchers.values()), "a key without watchers is kept"
        assert not any(operation.completed for operation in timed)
        assert sorted(self._ticks) == sorted(self._buckets)
