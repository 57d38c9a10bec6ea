"""Markers to the leaders of partitions: by a local call or by WriteTxnMarkers.

At most one request per broker is in flight; rows queued meanwhile share the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.node.broker_calls_shell import BrokerCalls
from broker.node.transaction_markers import EndedTransaction
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.protocol.topic_partition import TopicPartition
from broker.transactions.markers import MarkerRow, Markers

ROWS_PER_REQUEST: Final = 16

Outcome = Callable[[ErrorCode], None]
# Writes the marker of one partition that this broker leads.
WriteHere = Callable[[TopicPartition, EndedTransaction, Outcome], None]


class MarkerChannels:
    """Sender of rows to their brokers, which reports the outcomes."""

    def __init__(
        self, local_id: int, markers: Markers, write_here: WriteHere, calls: BrokerCalls
    ) -> None:
        self._local_id = local_id
        self._markers = markers
        self._write_here = write_here
        self._calls = calls
        self._waiting: dict[int, deque[MarkerRow]] = {}
        self._in_flight: set[int] = set()

    def send(self, broker_id: int, row: MarkerRow) -> None:
        """Send a row; its outcome is reported to `Markers`."""
        if broker_id == self._local_id:
            self._write(row)
            return
        self._waiting.setdefault(broker_id, deque()).append(row)
        self._call(broker_id)

    def _write(self, row: MarkerRow) -> None:
        ending = row.ending
        ended = EndedTransaction(
            *ending.producer,
            ending.is_commit,
            ending.coordinator_epoch,
            ending.transaction_version,
        )
        errors: dict[TopicPartition, ErrorCode] = {}

        def done(key: TopicPartition, error: ErrorCode) -> None:
            errors[key] = error
            if len(errors) == len(row.partitions):
                self._markers.answered(row, errors)

        for key in row.partitions:
            self._write_here(key, ended, partial(done, key))

    def _call(self, broker_id: int) -> None:
        waiting = self._waiting.get(broker_id)
        if not waiting or broker_id in self._in_flight:
            return
        rows = [waiting.popleft() for _ in range(min(len(waiting), ROWS_PER_REQUEST))]
        self._in_flight.add(broker_id)
        request = WriteTxnMarkersRequest(markers=[_marker(row) for row in rows])
        self._calls.submit(broker_id, request, partial(self._answered, broker_id, rows))

    def _answered(
        self,
        broker_id: int,
        rows: Sequence[MarkerRow],
        answer: WriteTxnMarkersResponse | KafkaError,
    ) -> None:
        self._in_flight.discard(broker_id)
        if isinstance(answer, KafkaError):
            for row in rows:
                self._markers.failed(row, answer.code)
        else:
            found = _errors(answer)
            for row in rows:
                producer_id = row.ending.producer.producer_id
                self._markers.answered(row, found.get(producer_id, {}))
        self._call(broker_id)


def _marker(row: MarkerRow) -> WritableTxnMarker:
    ending = row.ending
    topics: dict[str, list[int]] = {}
    for topic, partition in row.partitions:
        topics.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        producer_id=ending.producer.producer_id,
        producer_epoch=ending.producer.epoch,
        transaction_result=ending.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
        coordinator_epoch=ending.coordinator_epoch,
        transaction_version=ending.transaction_version,
    )


def _errors(
    answer: WriteTxnMarkersResponse,
) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Return the outcomes by producer id; a producer has one transaction at a time."""
    found: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in answer.markers:
        of_producer = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                of_producer[key] = row.error_code
    return found
