"""Deadlines by key, for a caller who asks what is due.

Kafka keeps the group timers in a hierarchical timing wheel driven by a thread. Nothing
runs here: ``next_ns`` says when to look again and ``pop_due`` what has come due. A
heartbeat moves its deadline about once in three seconds, nearly always to later, so a
moved deadline leaves its heap entry alone and is put right when that comes up.

``on_earlier_deadline`` is called when ``next_ns`` has come nearer, so that whoever
sleeps until then can be woken. Ties break by the order of scheduling.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """A set of keys with one deadline each. Cost: O(log n) amortised per call.

    >>> timers = Timers[str]()
    >>> timers.schedule("a", 5); timers.schedule("b", 3); timers.schedule("b", 9)
    >>> timers.next_ns(), timers.pop_due(8), timers.pop_due(8), timers.next_ns()
    (5, 'a', None, 9)
    """

    __slots__ = (
        "_deadlines",
        "_entries",
        "_heap",
        "_on_earlier_deadline",
        "_scheduled",
    )

    def __init__(self, on_earlier_deadline: Callable[[], None] = lambda: None) -> None:
        self._on_earlier_deadline = on_earlier_deadline
        self._deadlines: dict[K, int] = {}
        # The number of the one heap entry that speaks for the key; others are stale.
        self._entries: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._scheduled = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def __iter__(self) -> Iterator[K]:
        return iter(self._deadlines)

    def schedule(self, key: K, deadline_ns: int) -> None:
        """Set the deadline of ``key``, in place of one it may have."""
        old_ns = self._deadlines.get(key)
        self._deadlines[key] = deadline_ns
        if old_ns is None or deadline_ns < old_ns:
            self._push(key, deadline_ns)
            if self._heap[0][2] == key:
                self._on_earlier_deadline()
            if len(self._heap) > 64 and len(self._heap) > 2 * len(self._deadlines):
                self._drop_stale()

    def cancel(self, key: K) -> None:
        """Forget ``key``, if it has a deadline."""
        if self._deadlines.pop(key, None) is not None:
            del self._entries[key]

    def next_ns(self) -> int | None:
        """Return the earliest deadline, None if there is none."""
        self._settle_top()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ns: int) -> K | None:
        """Remove and return the key with the earliest deadline that has come."""
        self._settle_top()
        if not self._heap or self._heap[0][0] > now_ns:
            return None
        _, _, key = heapq.heappop(self._heap)
        self.cancel(key)
        return key

    def check(self) -> None:
        """Assert that every key has one live entry, no later than its deadline."""
        assert self._deadlines.keys() == self._entries.keys()
        live = {
            key: entry_ns
            for entry_ns, number, key in self._heap
            if self._entries.get(key) == number
        }
        for key, deadline_ns in self._deadlines.items():
            assert live[key] <= deadline_ns, key

    def _push(self, key: K, deadline_ns: int) -> None:
        self._scheduled += 1
        self._entries[key] = self._scheduled
        heapq.heappush(self._heap, (deadline_ns, self._scheduled, key))

    def _settle_top(self) -> None:
        """Drop or move entries until the one on top tells the truth."""
        while self._heap:
            entry_ns, number, key = self._heap[0]
            live = self._entries.get(key) == number
            if live and self._deadlines[key] == entry_ns:
                return
            heapq.heappop(self._heap)
            if live:
                self._push(key, self._deadlines[key])

    def _drop_stale(self) -> None:
        self._heap = [
            entry for entry in self._heap if self._entries.get(entry[2]) == entry[1]
        ]
        heapq.heapify(self._heap)
