"""Offsets that were committed in transactions which are still open.

Kafka: ``pendingTransactionalOffsets`` and ``openTransactionsByGroup`` of
``OffsetMetadataManager``. An offset takes effect once its transaction commits, unless a
later commit in the log has taken effect already: the order of the log decides. Readers
of stable offsets wait until the transaction ends, even for a replaced offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from broker.protocol.topic_partition import TopicPartition

V = TypeVar("V")


class _Pending(Generic[V]):
    """A commit and its position in the log's order; without a value if replaced."""

    __slots__ = ("order", "value")

    def __init__(self, order: int, value: V) -> None:
        self.order = order
        self.value: V | None = value


class OpenTransactions(Generic[V]):
    """One group's offsets in open transactions. Cost: O(producers of a partition).

    >>> found = OpenTransactions[str]()
    >>> found.add(7, TopicPartition("t", 0), "first")
    >>> found.add(8, TopicPartition("t", 0), "second")
    >>> list(found.end(8, is_commit=True))
    [(TopicPartition(topic='t', partition=0), 'second')]
    >>> list(found.end(7, is_commit=True))
    [(TopicPartition(topic='t', partition=0), None)]
    """

    __slots__ = ("_by_producer", "_order", "_producers_of")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[TopicPartition, _Pending[V]]] = {}
        self._producers_of: dict[TopicPartition, set[int]] = {}
        self._order = 0

    def __len__(self) -> int:
        """Return the number of partitions with offsets in open transactions."""
        return len(self._producers_of)

    def __contains__(self, target: TopicPartition) -> bool:
        return target in self._producers_of

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._producers_of))

    def add(self, producer_id: int, target: TopicPartition, value: V) -> None:
        """Add a commit, the latest in the log."""
        self._order += 1
        pending = self._by_producer.setdefault(producer_id, {})
        pending[target] = _Pending(self._order, value)
        self._producers_of.setdefault(target, set()).add(producer_id)

    def replaced(self, target: TopicPartition, before: int | None = None) -> None:
        """Drop values that a commit replaces: all, or those before its position."""
        for producer_id in self._producers_of.get(target, ()):
            pending = self._by_producer[producer_id][target]
            if before is None or pending.order < before:
                pending.value = None

    def remove(self, target: TopicPartition) -> None:
        """Remove a partition, since its offsets are deleted."""
        for producer_id in self._producers_of.pop(target, ()):
            del self._by_producer[producer_id][target]
            if not self._by_producer[producer_id]:
                del self._by_producer[producer_id]

    def end(
        self, producer_id: int, *, is_commit: bool
    ) -> Iterator[tuple[TopicPartition, V | None]]:
        """Remove and yield a transaction's offsets; effective ones have a value."""
        while pending := self._by_producer.get(producer_id):
            target = next(iter(pending))
            found = pending.pop(target)
            if not pending:
                del self._by_producer[producer_id]
            producers = self._producers_of[target]
            producers.discard(producer_id)
            if not producers:
                del self._producers_of[target]
            if is_commit and found.value is not None:
                self.replaced(target, found.order)
                yield target, found.value
            else:
                yield target, None

    def check(self) -> None:
        """Assert that both indexes agree, and that there are no empty entries."""
        assert all(self._by_producer.values()), self._by_producer
        pairs = {(of, it) for of, them in self._by_producer.items() for it in them}
        assert pairs == {
            (of, target) for target, them in self._producers_of.items() for of in them
        }
