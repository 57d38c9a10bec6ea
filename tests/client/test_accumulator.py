"""The accumulator compared with a naive one: order, limits and due times."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.client.producer.accumulator import PartitionQueue, RecordAccumulator
from broker.client.producer.buffer_pool import BufferPool
from broker.client.producer.producer_batch import ProducerBatch
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

BATCH_SIZE, LINGER_S, DELIVERY_S, TOTAL = 120, 0.25, 4.0, 720
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
partitions = st.sampled_from(PARTITIONS)


def numbers_in(batch: ProducerBatch) -> list[int]:
    # The timestamp of each record is its number.
    return [*batch.timestamps]


class Accumulating(RuleBasedStateMachine):
    """Records are appended, taken, answered, returned, and expire."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.pool = BufferPool(TOTAL)
        self.accumulator = RecordAccumulator(
            batch_size=BATCH_SIZE,
            linger_s=LINGER_S,
            delivery_timeout_s=DELIVERY_S,
            pool=self.pool,
        )
        for partition in PARTITIONS:
            self.accumulator.add_queue(partition, None)
        self.number = 0
        # Waiting records by partition, as (number, time of arrival).
        self.waiting: dict[TopicPartition, list[int]] = defaultdict(list)
        self.came_s: dict[int, float] = {}
        self.on_wire: list[tuple[ProducerBatch, list[int]]] = []

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self.accumulator.queue_of(partition)
        assert queue is not None
        return queue

    @rule(partition=partitions, size=st.integers(1, 50))
    def append(self, partition: TopicPartition, size: int) -> None:
        value = bytes(size)
        last = self.queue(partition).batches[-1:]
        fits = (
            bool(last)
            and not last[0].closed
            # A record takes seven bytes and the value, with lengths of one byte; a
            # timestamp delta of 64 or more takes a second byte.
            and last[0].size + 7 + size + (self.number - last[0].timestamps[0] > 63)
            <= BATCH_SIZE
        )
        receipt = self.accumulator.try_append(partition, self.number, None, value, ())
        assert (receipt is not None) == fits
        if receipt is None:
            if not self.pool.try_allocate(BATCH_SIZE):
                assert self.pool.available < BATCH_SIZE
                return
            batch = self.accumulator.new_batch(partition, BATCH_SIZE, self.now_s)
            assert batch.append(self.number, None, value, (), BATCH_SIZE)
        self.waiting[partition].append(self.number)
        self.came_s[self.number] = self.now_s
        self.number += 1

    @rule(seconds=st.sampled_from([0.05, 0.1, 1.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @precondition(lambda self: any(self.waiting.values()))
    @rule(partition=partitions)
    def take(self, partition: TopicPartition) -> None:
        queue = self.queue(partition)
        if not queue.batches:
            assert self.waiting[partition] == []
            return
        due_s = self.accumulator.due_s(queue, self.now_s)
        oldest_s = self.came_s[self.waiting[partition][0]]
        if queue.batches[0].attempts == 0:
            assert due_s <= max(oldest_s + LINGER_S, self.now_s)
            alone = len(queue.batches) == 1 and queue.batches[0].size < BATCH_SIZE
            if alone:
                assert due_s == oldest_s + LINGER_S
        if due_s > self.now_s:
            return
        batch = self.accumulator.take(queue)
        values = numbers_in(batch)
        # A batch consists of the oldest waiting records, in order, within its limit.
        assert values == self.waiting[partition][: len(values)]
        assert batch.size <= BATCH_SIZE
        del self.waiting[partition][: len(values)]
        self.on_wire.append((batch, values))

    @precondition(lambda self: self.on_wire)
    @rule(succeeds=st.booleans())
    def answer(self, succeeds: bool) -> None:
        batch, _ = self.on_wire.pop(0)
        if batch.is_done:
            return
        if succeeds:
            self.accumulator.succeed(batch, 0, -1)
        else:
            self.accumulator.fail(batch, KafkaError(ErrorCode.invalid_record))

    @precondition(lambda self: len(self.on_wire) == 1)
    @rule()
    def put_back(self) -> None:
        batch, values = self.on_wire.pop()
        if not batch.is_done:
            self.accumulator.put_back(batch, self.now_s + 0.1)
            self.waiting[batch.partition][:0] = values

    @rule()
    def expire(self) -> None:
        old = {n for n, came in self.came_s.items() if came + DELIVERY_S <= self.now_s}
        waiting = {n for numbers in self.waiting.values() for n in numbers}
        batches = {
            id(batch): numbers_in(batch)
            for partition in PARTITIONS
            for batch in self.queue(partition).batches
        }
        self.accumulator.expire(self.now_s)
        left = {
            id(batch)
            for partition in PARTITIONS
            for batch in self.queue(partition).batches
        }
        for key, values in batches.items():
            # The age of a batch is that of its first record.
            assert (key not in left) == (values[0] in old)
            if key not in left:
                waiting -= set(values)
        for numbers in self.waiting.values():
            numbers[:] = [n for n in numbers if n in waiting]
        for batch, values in self.on_wire:
            assert batch.is_done == (values[0] in old) or batch.is_done

    @invariant()
    def memory_is_what_the_batches_hold(self) -> None:
        queued = sum(len(self.queue(each).batches) for each in PARTITIONS)
        away = sum(not batch.is_done for batch, _ in self.on_wire)
        assert self.pool.available == TOTAL - BATCH_SIZE * (queued + away)


TestAccumulating = Accumulating.TestCase
TestAccumulating.settings = settings(max_examples=20, stateful_step_count=30)
