"""Deadlines by key; the caller takes the due ones.

Kafka keeps the group timers in a hierarchical timing wheel driven by a thread. Here is
no thread: ``next_ns`` returns the next deadline, ``pop_due`` a due key. The deadlines
are an ordered list: they move and are cancelled far more often than they expire.

``on_earlier_deadline`` is called when ``next_ns`` has become earlier, to wake a caller
that sleeps until then. Ties break by the order of scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from sortedcontainers import SortedList

K = TypeVar("K")


class _Entry(NamedTuple, Generic[K]):
    """An entry, ordered by deadline; unique numbers keep keys from being compared."""

    deadline_ns: int
    number: int
    key: K


class Timers(Generic[K]):
    """A set of keys with one deadline each. Cost: O(log n) per call.

    >>> timers = Timers[str]()
    >>> timers.schedule("a", 5); timers.schedule("b", 3); timers.schedule("b", 9)
    >>> timers.next_ns(), timers.pop_due(8), timers.pop_due(8), timers.next_ns()
    (5, 'a', None, 9)
    """

    __slots__ = ("_by_deadline", "_entries", "_on_earlier_deadline", "_scheduled")

    def __init__(self, on_earlier_deadline: Callable[[], None] = lambda: None) -> None:
        self._on_earlier_deadline = on_earlier_deadline
        self._entries: dict[K, _Entry[K]] = {}
        self._by_deadline: SortedList[_Entry[K]] = SortedList()
        self._scheduled = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def schedule(self, key: K, deadline_ns: int) -> None:
        """Set the deadline of ``key``, replacing any earlier one."""
        next_ns = self.next_ns()
        old = self._entries.get(key)
        if old is not None:
            self._by_deadline.remove(old)
        self._scheduled += 1
        entry = _Entry(deadline_ns, self._scheduled, key)
        self._entries[key] = entry
        self._by_deadline.add(entry)
        if next_ns is None or deadline_ns < next_ns:
            self._on_earlier_deadline()

    def cancel(self, key: K) -> None:
        """Remove the deadline of ``key``, if any."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._by_deadline.remove(entry)

    def next_ns(self) -> int | None:
        """Return the earliest deadline, None if no key has one."""
        if not self._by_deadline:
            return None
        nearest: _Entry[K] = self._by_deadline[0]
        return nearest.deadline_ns

    def pop_due(self, now_ns: int) -> K | None:
        """Remove and return the key with the earliest deadline, if it is due."""
        if not self._by_deadline or self._by_deadline[0].deadline_ns > now_ns:
            return None
        entry: _Entry[K] = self._by_deadline.pop(0)
        del self._entries[entry.key]
        return entry.key

    def check(self) -> None:
        """Assert that the list holds each key's entry, and nothing else."""
        assert list(self._by_deadline) == sorted(self._entries.values())
