"""Records collected in batches, by partition, until they are sent or have failed.

Kafka's ``RecordAccumulator``, without network and clock: times are arguments. A batch
is due when it is full, when another batch follows it, or after ``linger.ms``. During a
flush or a wait for memory it is due at once. A repeated batch is due after its backoff.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from broker.client.producer.buffer_pool import BufferPool
from broker.client.producer.producer_batch import (
    ANONYMOUS,
    Headers,
    ProducerBatch,
    Receipt,
)
from broker.client.producer.sequences import Sequences
from broker.client.retriable_errors import timed_out
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The unsent batches of one partition, in order."""

    partition: TopicPartition
    sequences: Sequences | None
    batches: list[ProducerBatch] = field(default_factory=list)


class RecordAccumulator:
    """All accepted records without a final outcome."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger_s: float,
        delivery_timeout_s: float,
        pool: BufferPool,
    ) -> None:
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._delivery_timeout_s = delivery_timeout_s
        self._pool = pool
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # An ordered set in the order of creation, the oldest batch first.
        self._incomplete: dict[ProducerBatch, None] = {}
        self._flushes = 0
        # Whether batches belong to transactions, and the listener of failed batches.
        self.is_transactional = False
        self.on_failure: Callable[[ProducerBatch, KafkaError], None] = _ignore_failure

    # ---- appending ------------------------------------------------------------------

    def try_append(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Receipt | None:
        """Add a record to the last batch of its partition, if it fits."""
        queue = self._queues.get(partition)
        if queue is None or not queue.batches:
            return None
        batch = queue.batches[-1]
        if batch.closed:
            return None
        if not batch.append(timestamp_ms, key, value, headers, self._batch_size):
            return None
        return Receipt(batch, batch.count - 1, timestamp_ms)

    def charge_for(self, record_bytes: int) -> int:
        """Return the bytes of the pool for a new batch with a record of this size."""
        return max(self._batch_size, record_bytes)

    def new_batch(
        self, partition: TopicPartition, charge: int, now_s: float
    ) -> ProducerBatch:
        """Begin a batch, for which ``charge`` has been taken from the pool."""
        batch = ProducerBatch(partition, now_s, charge, self.is_transactional)
        self._queues[partition].batches.append(batch)
        self._incomplete[batch] = None
        return batch

    def queue_of(self, partition: TopicPartition) -> PartitionQueue | None:
        """Return the queue of a partition, if it has had records."""
        return self._queues.get(partition)

    def add_queue(self, partition: TopicPartition, sequences: Sequences | None) -> None:
        """Begin the queue of a partition."""
        self._queues[partition] = PartitionQueue(partition, sequences)

    # ---- due batches ----------------------------------------------------------------

    def waiting(self) -> Iterator[PartitionQueue]:
        """Yield the queues that have batches."""
        return (queue for queue in self._queues.values() if queue.batches)

    def due_s(self, queue: PartitionQueue, now_s: float) -> float:
        """Return the time at which the first batch of a queue is due."""
        head = queue.batches[0]
        if head.attempts:
            return head.retry_at_s
        if (
            len(queue.batches) > 1
            or head.size >= self._batch_size
            or self._flushes
            or self._pool.queued
        ):
            return now_s
        return head.created_s + self._linger_s

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove and return the first batch of a queue, to be sent."""
        batch = queue.batches.pop(0)
        batch.attempts += 1
        batch.on_wire = True
        return batch

    def put_back(self, batch: ProducerBatch, retry_at_s: float) -> None:
        """Queue a batch to be sent again, in the order of sequence numbers."""
        batch.retry_at_s = retry_at_s
        queue = self._queues[batch.partition]
        if queue.sequences is None:
            queue.batches.insert(0, batch)
        else:
            queue.sequences.insert(queue.batches, batch)

    def split(self, batch: ProducerBatch) -> None:
        """Replace a batch that was too large by its halves."""
        halves = batch.halve()
        del self._incomplete[batch]
        everything = [*self._incomplete, *halves]
        everything.sort(key=lambda each: each.created_s)
        self._incomplete = dict.fromkeys(everything)
        sequences = self._queues[batch.partition].sequences
        if sequences is not None:
            sequences.replace(batch, halves)
        for half in reversed(halves):
            self.put_back(half, 0.0)

    # ---- outcomes -------------------------------------------------------------------

    def succeed(self, batch: ProducerBatch, offset: int, stamped_ms: int) -> None:
        """End a batch that has been written."""
        batch.succeed(offset, stamped_ms)
        self._end(batch)

    def fail(self, batch: ProducerBatch, failure: KafkaError) -> None:
        """End a batch that has not, or may not have, been written."""
        batch.fail(failure)
        queue = self._queues[batch.partition]
        if batch in queue.batches:
            queue.batches.remove(batch)
        if queue.sequences is not None and not batch.on_wire:
            queue.sequences.finish(batch, written=False)
        self._end(batch)
        self.on_failure(batch, failure)

    def _end(self, batch: ProducerBatch) -> None:
        del self._incomplete[batch]
        self._pool.deallocate(batch.charge)

    def expire(self, now_s: float) -> None:
        """Fail batches that are older than the delivery timeout."""
        while now_s >= self.next_expiry_s():
            batch = next(iter(self._incomplete))
            what = f"{batch.count} records for {batch.partition}"
            self.fail(batch, timed_out(f"{what}: delivery.timeout.ms has passed"))

    def next_expiry_s(self) -> float:
        """Return the time at which the oldest batch expires."""
        for batch in self._incomplete:
            return batch.created_s + self._delivery_timeout_s
        return math.inf

    def abort(self, failure: KafkaError) -> None:
        """Fail all batches."""
        for batch in [*self._incomplete]:
            self.fail(batch, failure)

    def abort_unsent(self, failure: KafkaError) -> None:
        """Fail batches without a sequence number, which have never been sent."""
        for batch in [*self._incomplete]:
            if batch.identity is ANONYMOUS:
                self.fail(batch, failure)

    def all_sequences(self) -> Iterator[Sequences]:
        """Iterate over the sequences of all partitions."""
        for queue in self._queues.values():
            if queue.sequences is not None:
                yield queue.sequences

    async def flush(self) -> None:
        """Send all current batches without lingering, and wait for their outcomes."""
        wanted = [*self._incomplete]
        self._flushes += 1
        try:
            for batch in wanted:
                await _ended(batch)
        finally:
            self._flushes -= 1


def _ignore_failure(batch: ProducerBatch, failure: KafkaError) -> None:
    """Do nothing: receipts report the failure."""


async def _ended(batch: ProducerBatch) -> None:
    await batch.done.wait()
    for half in batch.halves or ():
        await _ended(half)
