"""Collections of request items, built with preemption points."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from planes.slices import in_steps, preempt

K = TypeVar("K")


class _Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


C = TypeVar("C", bound=_Comparable)

# Values sorted, or copied, per step.
PAGE: Final = 256


async def distinct(items: Iterable[K]) -> dict[K, None]:
    """Return ``items`` without duplicates, in their order."""
    return {item: None async for item in in_steps(items)}


async def in_order(items: Sequence[C]) -> Iterator[C]:
    """Return ``items`` in ascending order, for iteration in steps."""
    pages = []
    for start in range(0, len(items), PAGE):
        pages.append(sorted(items[start : start + PAGE]))
        await preempt()
    return heapq.merge(*pages)
