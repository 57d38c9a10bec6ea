"""The producer: records in, receipts out.

Kafka's ``KafkaProducer`` for Trio. `KafkaProducer.send` returns when the record is in
the accumulator, `Receipt.wait` when the broker has acknowledged it. A program waits for
each receipt at once, or for higher throughput keeps the receipts and waits later. The
block of `open_producer` ends when all records have an outcome; if the block fails or is
cancelled, records without an acknowledgement are dropped.

>>> async def example():
...     async with open_producer("localhost:9092", linger_ms=20) as producer:
...         receipt = await producer.send("greetings", b"hello", key=b"k")
...         print((await receipt.wait()).offset)
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import trio

from broker.client.background_tasks import background
from broker.client.client_config import ClientConfig, parse_bootstrap
from broker.client.client_login import logged_in
from broker.client.client_metadata import Metadata
from broker.client.client_tls import secured
from broker.client.consumer.consumer_commits import GroupMetadata, OffsetAndMetadata
from broker.client.network_client import Connect, NetworkClient, connect_tcp
from broker.client.producer.accumulator import RecordAccumulator
from broker.client.producer.buffer_pool import BufferPool
from broker.client.producer.partitioner import StickyPartitioner, partition_for_key
from broker.client.producer.producer_batch import Headers, Receipt
from broker.client.producer.producer_config import (
    BATCH_SIZE,
    BUFFER_MEMORY,
    DELIVERY_TIMEOUT_MS,
    ENABLE_IDEMPOTENCE,
    LINGER_MS,
    MAX_BLOCK_MS,
    MAX_REQUEST_SIZE,
    TRANSACTIONAL_ID,
    producer_config,
)
from broker.client.producer.producer_ids import ProducerIds
from broker.client.producer.producer_transactions import Transactions
from broker.client.producer.sender import Sender
from broker.client.producer.sequences import Sequences
from broker.client.retriable_errors import disconnected
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

# Records between two checkpoints of a task that only sends.
_SENDS_PER_TURN: Final = 64
# Batch header, and the largest sizes of a record's length, attributes and deltas.
_OVERHEAD_BYTES: Final = 61 + 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD_BYTES: Final = 10


@asynccontextmanager
async def open_producer(
    bootstrap: str,
    *,
    connect: Connect = connect_tcp,
    ssl_context: ssl.SSLContext | None = None,
    rng: random.Random | None = None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    **settings: Any,
) -> AsyncIterator[KafkaProducer]:
    """Open a producer for the cluster at ``bootstrap``, a list of host:port.

    Settings are Kafka's, with underscores for points. ``ssl_context`` replaces the one
    from the settings of TLS. Raises `ConfigError`.
    """
    config = producer_config(settings)
    rng = rng or random.Random()
    connect = logged_in(config, secured(config, connect, ssl_context))
    client = NetworkClient(config, connect, rng)
    metadata = Metadata(config, parse_bootstrap(bootstrap), client, rng)
    producer = KafkaProducer(config, client, metadata, rng, now_ms)
    async with background() as nursery:
        await nursery.start(client.run)
        for task in producer.tasks:
            nursery.start_soon(task)
        try:
            yield producer
            await producer.flush()
        finally:
            producer.close()


class KafkaProducer:
    """Sends records; created by `open_producer`."""

    def __init__(
        self,
        config: ClientConfig,
        client: NetworkClient,
        metadata: Metadata,
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._rng = rng
        self._now_ms = now_ms
        self._batch_size = config[BATCH_SIZE]
        self._max_request_size = config[MAX_REQUEST_SIZE]
        self._max_block_s = config.seconds(MAX_BLOCK_MS)
        self._pool = BufferPool(config[BUFFER_MEMORY])
        self._accumulator = RecordAccumulator(
            batch_size=config[BATCH_SIZE],
            linger_s=config.seconds(LINGER_MS),
            delivery_timeout_s=config.seconds(DELIVERY_TIMEOUT_MS),
            pool=self._pool,
        )
        self._is_numbered = config[ENABLE_IDEMPOTENCE]
        ids = transactions = None
        if config[TRANSACTIONAL_ID] is not None:
            self._accumulator.is_transactional = True
            transactions = Transactions(
                config, client, metadata, self._accumulator, rng
            )
        elif self._is_numbered:
            ids = ProducerIds(config, client, metadata, rng)
        self._transactions = transactions
        self._sender = Sender(
            config, self._accumulator, client, metadata, ids, transactions, rng
        )
        client.on_change = self._sender.wake
        self.tasks = [metadata.run, self._sender.run]
        for source in (ids, transactions):
            if source is not None:
                source.on_change = self._sender.wake
                source.on_failure = self._give_up
                self.tasks.append(source.run)
        self._sticky: dict[str, StickyPartitioner] = {}
        self._sends = 0
        self._failure: KafkaError | None = None
        self._closed = False

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Receipt:
        """Put a record into the accumulator and return its receipt.

        Waits, at most ``max.block.ms``, until the topic is known and there is buffer
        memory. A call that is cancelled or fails has not accepted the record. Raises
        `KafkaError`. Every call checks for cancellation; only one call of 64 yields to
        other tasks, which limits the cost per batch.
        """
        self._sends += 1
        if self._sends % _SENDS_PER_TURN:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        if self._closed:
            raise trio.ClosedResourceError("the producer is closed")
        if self._failure is not None:
            raise KafkaError(self._failure.code, self._failure.message)
        if self._transactions is not None:
            self._transactions.check_open()
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        until_s = float("inf")
        count = self._metadata.partition_count(topic)
        if count is None:
            until_s = trio.current_time() + self._max_block_s
            count = await self._metadata.wait_for(topic, until_s)
        if partition is not None and not 0 <= partition < count:
            what = f"{topic} has partitions 0 to {count - 1}, not {partition}"
            raise KafkaError(ErrorCode.unknown_topic_or_partition, what)
        target = TopicPartition(topic, self._choose(topic, key, partition, count))
        receipt = self._accumulator.try_append(
            target, timestamp_ms, key, value, headers
        )
        if receipt is None:
            charge = await self._room(key, value, headers, until_s)
            receipt = self._append(target, charge, timestamp_ms, key, value, headers)
        if key is None and partition is None:
            size = len(value or b"")
            self._sticky[topic].account(size)
        return receipt

    async def flush(self) -> None:
        """Send all records without lingering, and wait for their outcomes."""
        await trio.lowlevel.checkpoint()
        # The sender runs once this task waits, after the flush has begun.
        self._sender.wake()
        await self._accumulator.flush()

    # ---- transactions ---------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Fence earlier producers of ``transactional.id``; end their open transaction.

        Required once, before the first transaction. Raises `KafkaError`.
        """
        await self._with_transactions().init()

    async def begin_transaction(self) -> None:
        """Begin a transaction, which includes all records until its end."""
        await self._with_transactions().begin()

    async def commit_transaction(self) -> None:
        """Wait until all records are written, and commit.

        Raises the `KafkaError` of a failed record or request. The transaction then has
        to be aborted, unless the error is fatal. After a time-out a commit may be
        repeated.
        """
        await self._with_transactions().commit()

    async def abort_transaction(self) -> None:
        """Drop the unsent records of the transaction, and abort it."""
        self._sender.wake()
        await self._with_transactions().abort()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: GroupMetadata,
    ) -> None:
        """Commit offsets of a consumer's group with the transaction (KIP-447).

        ``group`` is `KafkaConsumer.group_metadata`. Raises `KafkaError`.
        """
        positions = {
            partition: OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in offsets.items()
        }
        await self._with_transactions().send_offsets(positions, group)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction, and commit it at the end of the block.

        The transaction is aborted if the block fails. It stays open if the block is
        cancelled: the next `init_transactions`, or ``transaction.timeout.ms``, aborts
        it.
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except Exception:
            with suppress(KafkaError):
                await self.abort_transaction()
            raise

    def _with_transactions(self) -> Transactions:
        if self._transactions is None:
            raise ConfigError(TRANSACTIONAL_ID.name, None, "a name, for transactions")
        return self._transactions

    def close(self) -> None:
        """Accept no further records, and fail all records without an outcome."""
        self._closed = True
        self._accumulator.abort(disconnected("the producer was closed"))

    # ---- internals ------------------------------------------------------------------

    def _choose(
        self, topic: str, key: bytes | None, partition: int | None, count: int
    ) -> int:
        if partition is not None:
            return partition
        if key is not None:
            return partition_for_key(key, count)
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = StickyPartitioner(self._batch_size, self._rng)
            self._sticky[topic] = sticky
        chosen = sticky.chosen
        if chosen is None:
            chosen = sticky.partition(count, self._metadata.led(topic))
        return chosen

    async def _room(
        self, key: bytes | None, value: bytes | None, headers: Headers, until_s: float
    ) -> int:
        """Allocate memory for a new batch that begins with this record."""
        size = _record_bytes(key, value, headers)
        limit = min(self._max_request_size, self._pool.total)
        if size > limit:
            what = f"a record of {size} bytes, the limit is {limit}"
            raise KafkaError(ErrorCode.message_too_large, what)
        charge = self._accumulator.charge_for(size)
        charge = min(charge, self._pool.total)
        if not self._pool.try_allocate(charge):
            until_s = min(until_s, trio.current_time() + self._max_block_s)
            self._sender.wake()
            await self._pool.allocate(charge, until_s)
            if self._closed:
                self._pool.deallocate(charge)
                raise trio.ClosedResourceError("the producer is closed")
        return charge

    def _append(
        self,
        target: TopicPartition,
        charge: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Receipt:
        """Append to a new batch, unless another task has begun one meanwhile."""
        accumulator = self._accumulator
        receipt = accumulator.try_append(target, timestamp_ms, key, value, headers)
        if receipt is not None:
            self._pool.deallocate(charge)
            return receipt
        if accumulator.queue_of(target) is None:
            sequences = None
            if self._is_numbered:
                sequences = Sequences(bumps=self._transactions is None)
            accumulator.add_queue(target, sequences)
        batch = accumulator.new_batch(target, charge, trio.current_time())
        batch.append(timestamp_ms, key, value, headers, charge)
        self._sender.wake()
        return Receipt(batch, 0, timestamp_ms)

    def _give_up(self, failure: KafkaError) -> None:
        """Fail all records, now and later."""
        self._failure = failure
        self._accumulator.abort(failure)


def _record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the largest possible size of a batch with only this record."""
    size = _OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content or b"")
    return size
