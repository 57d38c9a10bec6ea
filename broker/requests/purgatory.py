"""Where requests wait without a handler: for followers, for data, for a group.

Mirrors Kafka's ``DelayedOperationPurgatory``. An operation is watched under keys (a
partition, a group); whoever changes something under a key calls
`Purgatory.check_and_complete`, and the operation is tried again. At its deadline it
expires. It completes exactly once, either way, and then calls ``wake``, which for a
parked handler (``planes.slices.parked``) means that it goes on through its scheduler.

Differences from Kafka: one thread, so trying and then watching needs no second try, no
shards and no compare-and-set; a completed operation leaves its keys and its timer at
once, so there is nothing to purge. The timer is a wheel of 1 ms ticks, as Kafka's is,
but in one level: a bucket is a dictionary entry and empty ticks do not exist.

Where operations are tried in their own turns (``tries_here=False``), a change only
wakes them: the handler then tries, and watches again in vain. So the work is its own to
pay for, can be preempted between two of them, and comes in the order of its scheduler;
the price is a pass through that for each try in vain. Whoever makes the change does no
more than wake them, in pieces if they are many (`Purgatory.completing`).

What an operation raises is its own: it is woken and told (`Delayed.on_failure`), and
whoever changed something under its key goes on.

Pure: no clock is read and nothing waits here; `expire` is told the time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Hashable, Iterable
from logging import getLogger
from typing import Final, Protocol

logger = getLogger(__name__)

TICK_NS: Final = 1_000_000
_TICKS_KEPT: Final = 1024
# Operations that are tried, or woken, in one piece: a fifth of a millisecond.
PIECE: Final = 64

Wake = Callable[[], None]


class Delayed(Protocol):
    """What waits: Kafka's ``DelayedOperation`` without its bookkeeping."""

    def try_complete(self) -> bool:
        """Return True once there is nothing left to wait for.

        It is called whenever something changed under a watched key, perhaps in vain.
        """

    def on_expiration(self) -> None:
        """Note that the deadline came first; called at most once, before ``wake``."""

    def on_failure(self) -> None:
        """Note that trying it has failed; it is not tried again, and woken next."""


def _try_complete(delayed: Delayed) -> bool:
    try:
        return delayed.try_complete()
    except Exception:
        # It runs in the turn of whoever changed something: not that one's fault.
        logger.exception("an operation in purgatory has failed")
        delayed.on_failure()
        return True


class DelayedOperation:
    """One stay in a purgatory; completes once, by `force_complete`."""

    __slots__ = ("_purgatory", "_wake", "completed", "delayed", "keys", "tick")

    def __init__(
        self,
        purgatory: Purgatory,
        delayed: Delayed,
        keys: tuple[Hashable, ...],
        tick: int,
        wake: Wake,
    ) -> None:
        self.delayed = delayed
        self.keys = keys
        self.tick = tick
        self.completed = False
        self._purgatory = purgatory
        self._wake = wake

    def try_complete(self) -> bool:
        """Complete the operation if its condition holds, or if others try it then.

        Returns True if it did so now.
        """
        if self.completed:
            return False
        if self._purgatory.tries_here and not _try_complete(self.delayed):
            return False
        return self.force_complete()

    def force_complete(self) -> bool:
        """Complete the operation whatever its condition; False if it was complete."""
        if self.completed:
            return False
        self.completed = True
        self._purgatory.forget(self)
        self._wake()
        return True


class Purgatory:
    """The operations of one kind that wait, by key and by deadline.

    ``name`` is Kafka's (Produce, Fetch, Rebalance ...), for the metrics
    ``PurgatorySize`` and ``ExpiresPerSec``. ``on_earlier_deadline`` is called when
    `next_expiry_ns` has moved towards the present, so that a timer can be set anew.
    Unless ``tries_here``, operations are woken by any change, and tried by their own.

    Cost: watching and forgetting O(number of keys); a check O(watchers of the key).
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
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._buckets: dict[int, dict[DelayedOperation, None]] = {}
        self._ticks: list[int] = []
        # How many operations wait: Kafka's ``NumDelayedOperations``.
        self.size = 0

    def watch(
        self,
        delayed: Delayed,
        keys: Iterable[Hashable],
        deadline_ns: int,
        wake: Wake,
    ) -> DelayedOperation | None:
        """Try ``delayed``, and watch it under ``keys`` if it is not complete.

        Returns None if it completed at once; then ``wake`` is never called. This is
        Kafka's ``tryCompleteElseWatch``, and the ``register`` of a parked handler.
        Where operations are tried in turns of their own, this is done before.
        """
        if self.tries_here and _try_complete(delayed):
            return None
        tick = -(-deadline_ns // TICK_NS)
        distinct = tuple(dict.fromkeys(keys))
        operation = DelayedOperation(self, delayed, distinct, tick, wake)
        for key in operation.keys:
            self._watchers.setdefault(key, {})[operation] = None
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

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation watched under ``key``; return how many completed."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        return sum([operation.try_complete() for operation in tuple(watchers)])

    def are_many(self, key: Hashable) -> bool:
        """Tell whether more operations wait under ``key`` than are tried in a piece."""
        return len(self._watchers.get(key, ())) > PIECE

    def completing(self, key: Hashable) -> Generator[None]:
        """Do as `check_and_complete`, in pieces."""
        for number, operation in enumerate(tuple(self._watchers.get(key, ())), 1):
            operation.try_complete()
            if not number % PIECE:
                yield

    def next_expiry_ns(self) -> int | None:
        """Return the earliest deadline, rounded up to a tick; None if none waits."""
        ticks = self._ticks
        while ticks and not self._buckets[ticks[0]]:
            del self._buckets[heapq.heappop(ticks)]
        return ticks[0] * TICK_NS if ticks else None

    def expire(self, now_ns: int) -> int:
        """Complete all whose deadline has passed; return how many did expire."""
        expired = 0
        while (expiry_ns := self.next_expiry_ns()) is not None and expiry_ns <= now_ns:
            bucket = self._buckets[self._ticks[0]]
            operation = next(iter(bucket))
            try:
                operation.delayed.on_expiration()
            finally:
                # Else it would be the first that is due for ever.
                operation.force_complete()
            expired += 1
        self.expired_total += expired
        return expired

    def forget(self, operation: DelayedOperation) -> None:
        """Take a completed operation off its keys and its timer."""
        self.size -= 1
        del self._buckets[operation.tick][operation]
        for key in operation.keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        if len(self._ticks) > 2 * self.size + _TICKS_KEPT:
            self._drop_empty_ticks()

    def _drop_empty_ticks(self) -> None:
        """Forget ticks that have emptied; else far deadlines would pile up."""
        self._buckets = {tick: ops for tick, ops in self._buckets.items() if ops}
        self._ticks = sorted(self._buckets)

    def check(self) -> None:
        """Assert that keys, timer and count tell of the same operations."""
        timed = {operation for bucket in self._buckets.values() for operation in bucket}
        watched = {op for watchers in self._watchers.values() for op in watchers}
        assert len(timed) == self.size, (len(timed), self.size)
        assert watched <= timed, watched - timed
        for operation in timed:
            for key in operation.keys:
                assert operation in self._watchers[key], (key, operation)
        assert all(self._watchers.values()), "a key without watchers is kept"
        assert not any(operation.completed for operation in timed)
        assert sorted(self._ticks) == sorted(self._buckets)
