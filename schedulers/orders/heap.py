"""A binary heap whose items can be moved and removed, for policies that order by key.

A stale entry of a moved or removed item stays in the heap until it reaches the top, so
a move costs one push. A sorted list would keep a full order, which no policy needs. Not
supported: iteration in order, and keys that are not integers.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_SLACK = 64


class Heap(Generic[T]):
    """Items by ascending ``(key, number)``; the number breaks ties.

    Cost: O(log n) amortised for ``put`` and ``pop``, O(1) for ``remove``.

    >>> heap: Heap[str] = Heap()
    >>> heap.put("a", 2, 0)
    >>> heap.put("b", 1, 1)
    >>> heap.put("b", 3, 1)
    >>> heap.first(), heap.pop(), heap.pop(), len(heap)
    ('a', 'a', 'b', 0)
    """

    __slots__ = ("_entries", "_live", "_serial")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int, T]] = []
        self._live: dict[T, tuple[int, int, int, T]] = {}
        self._serial = 0

    def put(self, item: T, key: int, number: int) -> None:
        """Add the item, or move an existing item to this key."""
        self._serial += 1
        entry = (key, number, self._serial, item)
        self._live[item] = entry
        heapq.heappush(self._entries, entry)
        if len(self._entries) > 2 * len(self._live) + _SLACK:
            self._entries = list(self._live.values())
            heapq.heapify(self._entries)

    def remove(self, item: T) -> None:
        """Remove the item.

        :raises KeyError: if the heap does not hold the item.
        """
        del self._live[item]

    def first(self) -> T | None:
        """Return the item with the least key, or None if the heap is empty."""
        entries, live = self._entries, self._live
        while entries:
            entry = entries[0]
            if live.get(entry[3]) is entry:
                return entry[3]
            heapq.heappop(entries)
        return None

    def pop(self) -> T:
        """Remove and return the item with the least key.

        :raises IndexError: if the heap is empty.
        """
        entries, live = self._entries, self._live
        while True:
            entry = heapq.heappop(entries)
            item = entry[3]
            if live.get(item) is entry:
                del live[item]
                return item

    def key(self, item: T) -> int:
        """Return the key of an item.

        :raises KeyError: if the heap does not hold the item.
        """
        return self._live[item][0]

    def __contains__(self, item: T) -> bool:
        return item in self._live

    def __iter__(self) -> Iterator[T]:
        return iter(self._live)

    def __len__(self) -> int:
        return len(self._live)
