"""The partition of a record: by its key, or sticky for records without a key.

With a key the partition is murmur2 of the key modulo the number of partitions, as in
Java's client, so that all clients of a topic agree. Without a key, records go to the
same partition for ``batch.size`` bytes, then to another one drawn at random among those
with a leader. Batches are thus full, and partitions receive equal bytes (KIP-794,
without its adaptation to slow brokers).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of ``data``, as a signed number.

    >>> murmur2(b"21")
    -973932308
    """
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Java's ``BuiltInPartitioner``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """The current partition for records of one topic without a key."""

    def __init__(self, batch_size: int, rng: random.Random) -> None:
        self._batch_size = max(batch_size, 1)
        self._rng = rng
        self._current: int | None = None
        self._bytes = 0

    def partition(self, partitions: int, led: Sequence[int]) -> int:
        """Return the current choice; a new one is drawn from ``led`` if possible."""
        if self._current is None:
            self._current = (
                self._rng.choice(led) if led else self._rng.randrange(partitions)
            )
            self._bytes = 0
        return self._current

    @property
    def chosen(self) -> int | None:
        """The current choice; None: none has been made."""
        return self._current

    def account(self, size_bytes: int) -> None:
        """Count bytes sent to the current choice."""
        self._bytes += size_bytes
        if self._bytes >= self._batch_size:
            self._current = None
