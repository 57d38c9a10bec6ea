"""State of a consumer's partitions: position, and prefetched records.

Kafka's ``SubscriptionState`` with the buffers of its ``FetchBuffer``. ``position`` is
the offset of the next record to return; ``fetch_from`` is ahead of it by the prefetched
records. A seek changes a partition's ``version``, so the response to an older request
is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from broker.client.consumer.consumer_record import ConsumerRecord, FetchedBatches
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition

# ListOffsets' special timestamps.
LATEST, EARLIEST = -1, -2


class PartitionState:
    """One assigned partition."""

    __slots__ = (
        "failure",
        "fetch_from",
        "fetched",
        "partition",
        "paused",
        "position",
        "prefetched_bytes",
        "ready",
        "reset_to",
        "retry_at_s",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        self.fetch_from = 0
        # The timestamp of the start while there is no position; None: the committed
        # offset.
        self.reset_to: int | None = None
        self.paused = False
        self.version = 0
        self.retry_at_s = 0.0
        self.failure: KafkaError | None = None
        self.fetched: deque[FetchedBatches] = deque()
        self.prefetched_bytes = 0
        self.ready: deque[ConsumerRecord] = deque()

    def seek(self, offset: int) -> None:
        """Set the position to ``offset``; prefetched records are dropped."""
        self._discard_fetched()
        self.position = self.fetch_from = offset

    def reset(self, timestamp: int) -> None:
        """Clear the position, which is to be found by a timestamp."""
        self._discard_fetched()
        self.position, self.reset_to = None, timestamp

    def store(self, batches: FetchedBatches) -> None:
        """Store a broker's batches from ``fetch_from`` on."""
        if batches.next_offset is not None:
            self.fetched.append(batches)
            self.prefetched_bytes += batches.size_bytes
            self.fetch_from = batches.next_offset

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return up to ``count`` prefetched records, and advance the position.

        Records end before a damaged batch; the partition then fails until a seek.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < count and (self.ready or self._unpack()):
            while self.ready and len(taken) < count:
                taken.append(self.ready.popleft())
        if taken:
            self.position = taken[-1].offset + 1
        if not self.ready and not self.fetched:
            # Skips offsets without records, after compaction or of markers.
            self.position = self.fetch_from
        return taken

    def _unpack(self) -> bool:
        """Unpack the records of the next batch; False if there is no batch."""
        assert self.position is not None
        while self.fetched:
            try:
                batch = self.fetched[0].next_batch()
            except KafkaError as error:
                self.failure = error
                return False
            if batch is None:
                self.fetched.popleft()
                continue
            records, size_bytes = batch
            self.prefetched_bytes -= size_bytes
            position = self.position
            self.ready.extend(each for each in records if each.offset >= position)
            return True
        return False

    def _discard_fetched(self) -> None:
        self.version += 1
        self.reset_to = self.failure = None
        self.retry_at_s = 0.0
        self.fetched.clear()
        self.ready.clear()
        self.prefetched_bytes = 0


class SubscriptionState:
    """The assigned partitions."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self._turn = 0
        # Whether prefetched records have been taken since the last check.
        self.has_room = False

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._states)

    @property
    def states(self) -> list[PartitionState]:
        """The states of the assigned partitions."""
        return [*self._states.values()]

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of a partition; raises `ValueError` if not assigned."""
        state = self._states.get(partition)
        if state is None:
            raise ValueError(f"{partition} is not assigned to this consumer")
        return state

    def is_current(self, state: PartitionState, version: int) -> bool:
        """Return whether a partition is unchanged since ``version``."""
        return self._states.get(state.partition) is state and state.version == version

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions; kept ones keep their state."""
        old = self._states
        self._states = {
            each: old.get(each) or PartitionState(each) for each in sorted(partitions)
        }

    def positions(self) -> dict[TopicPartition, int]:
        """Return the known positions: the offsets after the last returned records."""
        return {
            each.partition: each.position
            for each in self._states.values()
            if each.position is not None
        }

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return up to ``count`` records, beginning with partitions in turn.

        If there are none, raises the `KafkaError` of a failed partition.
        """
        states = [each for each in self._states.values() if not each.paused]
        if not states:
            return []
        self._turn += 1
        start = self._turn % len(states)
        taken: list[ConsumerRecord] = []
        for state in states[start:] + states[:start]:
            if len(taken) == count:
                break
            if state.position is not None and state.failure is None:
                held_bytes = state.prefetched_bytes
                taken += state.take(count - len(taken))
                self.has_room |= state.prefetched_bytes < held_bytes
        for state in states:
            if state.failure is not None and not taken:
                raise state.failure
        return taken
