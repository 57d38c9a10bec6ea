"""The sender: due batches to brokers, a request per broker, and their outcomes.

Kafka's ``Sender``. One synchronous step examines all waiting batches and sends the due
ones; then the task sleeps until something changes or the next batch is due. A response
is handled synchronously when it is read, before other code runs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import (
    REQUEST_TIMEOUT_MS,
    ClientConfig,
)
from broker.client.client_metadata import Metadata
from broker.client.network_client import NetworkClient, Node
from broker.client.producer.accumulator import PartitionQueue, RecordAccumulator
from broker.client.producer.producer_batch import NO_OFFSET, ProducerBatch
from broker.client.producer.producer_config import (
    CODECS,
    COMPRESSION_TYPE,
    MAX_IN_FLIGHT,
    MAX_REQUEST_SIZE,
    RETRIES,
    TRANSACTIONAL_ID,
    acks_of,
)
from broker.client.producer.producer_ids import ProducerIds
from broker.client.producer.producer_transactions import Transactions
from broker.client.producer.sequences import Sequences
from broker.client.retriable_errors import STALE_METADATA, is_retriable
from broker.client.signals import Signal
from broker.client.versions import NO_LIMITS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.protocol.topic_partition import TopicPartition

_WRITTEN: Final = frozenset({ErrorCode.none, ErrorCode.duplicate_sequence_number})


class Sender:
    """The task that empties an accumulator."""

    def __init__(
        self,
        config: ClientConfig,
        accumulator: RecordAccumulator,
        client: NetworkClient,
        metadata: Metadata,
        producer_ids: ProducerIds | None,
        transactions: Transactions | None,
        rng: random.Random,
    ) -> None:
        self._transactions = transactions
        self._transactional_id = config[TRANSACTIONAL_ID]
        self._accumulator = accumulator
        self._client = client
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._acks = acks_of(config)
        self._codec = CODECS[config[COMPRESSION_TYPE]]
        self._retries = config[RETRIES]
        self._max_in_flight = config[MAX_IN_FLIGHT]
        self._max_request_bytes = config[MAX_REQUEST_SIZE]
        self._timeout = timedelta(milliseconds=config[REQUEST_TIMEOUT_MS])
        self._backoff = retry_backoff(config, rng)
        self._turn = 0
        self._wake = Signal()

    def wake(self) -> None:
        """Examine all batches again, after a change of batches, nodes or leaders."""
        self._wake.notify()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait(self._step(trio.current_time()))

    # ---- sending --------------------------------------------------------------------

    def _step(self, now_s: float) -> float:
        """Send all due batches; return the time of the next step."""
        self._accumulator.expire(now_s)
        next_s = self._accumulator.next_expiry_s()
        due: dict[int, list[PartitionQueue]] = {}
        for queue in self._accumulator.waiting():
            due_s = self._accumulator.due_s(queue, now_s)
            if due_s > now_s:
                next_s = min(next_s, due_s)
            elif self._is_numbered(queue):
                leader = self._metadata.leader(queue.partition)
                if leader is None:
                    self._metadata.request_update()
                else:
                    due.setdefault(leader.node_id, []).append(queue)
        self._turn += 1
        for node_id, queues in due.items():
            node = self._client.node(self._metadata.address(node_id))
            # Rotate the partitions, since a request may not hold batches of all.
            start = self._turn % len(queues)
            self._send_to(node, queues[start:] + queues[:start], now_s)
            if node.throttled_until_s > now_s:
                next_s = min(next_s, node.throttled_until_s)
        return next_s

    def _is_numbered(self, queue: PartitionQueue) -> bool:
        if queue.sequences is None:
            return True
        if self._transactions is not None:
            return self._transactions.may_send(queue.partition, queue.sequences)
        if self._producer_ids is None:
            return True
        if queue.sequences.needs_identity:
            self._producer_ids.give(queue.sequences)
        return not queue.sequences.needs_identity

    def _send_to(self, node: Node, queues: list[PartitionQueue], now_s: float) -> None:
        while node.ready() and node.in_flight < self._max_in_flight:
            batches = self._take(queues, now_s)
            if not batches:
                return
            request = self._request(batches)
            if self._acks == 0:
                done = partial(self._unanswered, batches)
                node.submit_unanswered(request, done)
            else:
                node.submit(
                    request,
                    partial(self._answered, batches),
                    self._timeout.total_seconds(),
                    newest=self._newest,
                )

    @property
    def _newest(self) -> Mapping[ApiKey, int]:
        """Upper bounds of versions in the protocol of transactions."""
        if self._transactions is None:
            return NO_LIMITS
        return self._transactions.newest_versions

    def _take(self, queues: list[PartitionQueue], now_s: float) -> list[ProducerBatch]:
        """Take the first batch of each queue, up to the size of a request."""
        batches: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            if not queue.batches or self._accumulator.due_s(queue, now_s) > now_s:
                continue
            head = queue.batches[0]
            if batches and size + head.size > self._max_request_bytes:
                continue
            if queue.sequences is None or queue.sequences.may_send(head):
                batches.append(self._accumulator.take(queue))
                size += head.size
            elif queue.sequences.needs_identity:
                # The epochs are exhausted: the next step requests a new id.
                self._wake.notify()
        return batches

    def _request(self, batches: Sequence[ProducerBatch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.partition
            records = batch.to_wire(self._codec)
            topics.setdefault(topic, []).append(
                PartitionProduceData(index=partition, records=records)
            )
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout=self._timeout,
            topic_data=[
                TopicProduceData(name=topic, partition_data=data)
                for topic, data in topics.items()
            ],
        )

    # ---- responses ------------------------------------------------------------------

    def _answered(
        self, batches: Sequence[ProducerBatch], answer: ProduceResponse | KafkaError
    ) -> None:
        if isinstance(answer, KafkaError):
            for batch in batches:
                self._refused(batch, answer)
        else:
            found = _by_partition(answer)
            for batch in batches:
                self._settle(batch, found.get(batch.partition))
        self._wake.notify()

    def _unanswered(
        self, batches: Sequence[ProducerBatch], error: KafkaError | None
    ) -> None:
        """End batches of acks=0 after the write, until which they hold memory."""
        for batch in batches:
            if error is not None:
                self._refused(batch, error)
                continue
            self._finish(batch, written=True)
            if not batch.is_done:
                self._accumulator.succeed(batch, NO_OFFSET, -1)
        self._wake.notify()

    def _settle(
        self, batch: ProducerBatch, outcome: PartitionProduceResponse | None
    ) -> None:
        if outcome is None:
            code = ErrorCode.unknown_server_error
            self._refused(batch, KafkaError(code, "the answer leaves a partition out"))
        elif outcome.error_code in _WRITTEN:
            self._finish(batch, written=True)
            if not batch.is_done:
                stamped = outcome.log_append_time
                stamped_ms = -1 if stamped is None else round(stamped.timestamp() * 1e3)
                self._accumulator.succeed(batch, outcome.base_offset, stamped_ms)
        else:
            error = KafkaError(outcome.error_code, outcome.error_message)
            self._refused(batch, error)

    def _refused(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Queue a batch again, or its halves, or fail it."""
        sequences = self._sequences(batch)
        code = error.code
        if code in STALE_METADATA:
            self._metadata.request_update()
        is_gap = sequences is not None and sequences.is_gap(code, batch)
        if batch.is_done:
            # The batch has expired while it was in flight.
            self._finish(batch, written=False)
        elif code is ErrorCode.message_too_large and batch.count > 1:
            batch.on_wire = False
            self._accumulator.split(batch)
        elif (is_gap or is_retriable(code)) and batch.attempts <= self._retries:
            batch.on_wire = False
            wait_s = 0.0 if is_gap else self._backoff.after(batch.attempts)
            self._accumulator.put_back(batch, trio.current_time() + wait_s)
        else:
            batch.on_wire = False
            self._accumulator.fail(batch, error)

    def _finish(self, batch: ProducerBatch, *, written: bool) -> None:
        batch.on_wire = False
        sequences = self._sequences(batch)
        if sequences is not None:
            sequences.finish(batch, written=written)

    def _sequences(self, batch: ProducerBatch) -> Sequences | None:
        queue = self._accumulator.queue_of(batch.partition)
        assert queue is not None
        return queue.sequences


def _by_partition(
    answer: ProduceResponse,
) -> dict[TopicPartition, PartitionProduceResponse]:
    return {
        TopicPartition(topic.name, each.index): each
        for topic in answer.responses
        for each in topic.partition_responses
    }
