"""WriteTxnMarkers (27): a transaction coordinator ends transactions in partitions.

Versions: 1-2.

Behaviour:
- A marker is appended to each partition. The response is sent once all in-sync replicas
  have the markers, or after ``request.timeout.ms`` (REQUEST_TIMED_OUT). Partitions fail
  independently.
- INVALID_PRODUCER_EPOCH is returned for an older producer epoch than the log's, and
  under ``transaction.version`` 2 also for the epoch of an open transaction;
  TRANSACTION_COORDINATOR_FENCED for an older coordinator epoch;
  UNKNOWN_TOPIC_OR_PARTITION if this broker has no replica.
- In ``__consumer_offsets`` a marker also publishes or drops the offsets committed by
  the transaction, before the response.
- Brokers send this request, in class ``replication``: consumers of committed records,
  and the next transaction of the producer, wait for the marker. The class is not
  ``control``, since clients determine the number of markers.
- A request can be preempted between partitions.

Version notes: v1 is flexible, v2 has the ``transaction.version`` of each marker.

Left out: v0, which Kafka 4 has removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.apis.common.access import CLUSTER_ACTION
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.parked_handlers import parked_for_client
from broker.config import REQUEST_TIMEOUT_MS
from broker.node.broker import Broker
from broker.node.transaction_markers import EndedTransaction
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import REPLICATION
from broker.requests.entitlement import Role
from broker.requests.request import Request
from planes.slices import Pace, Wake, in_steps, preempt

# The producer and the partition of a marker.
_Target = tuple[int, TopicPartition]


async def handle(
    request: Request, body: WriteTxnMarkersRequest, broker: Broker
) -> WriteTxnMarkersResponse:
    """Write all markers, and respond once each is replicated or has failed."""
    outcomes = _Outcomes()
    timeout_ms = broker.config[REQUEST_TIMEOUT_MS]
    for marker in body.markers:
        ended = EndedTransaction(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        for topic in marker.topics:
            for index in topic.partition_indexes:
                key = TopicPartition(topic.name, index)
                done = outcomes.expect((marker.producer_id, key))
                broker.markers.write(key, ended, timeout_ms, done)
                await preempt()
    if outcomes.missing:
        await parked_for_client(request, outcomes.register)
    return await _answer(outcomes)


class _Outcomes:
    """The last outcome of each target."""

    def __init__(self) -> None:
        self.found: dict[_Target, ErrorCode] = {}
        self.missing = 0
        self._wake: Wake | None = None

    def expect(self, target: _Target) -> Callable[[ErrorCode], None]:
        """Return the function that receives the outcome of another marker."""
        self.missing += 1
        self.found[target] = ErrorCode.none

        def done(error: ErrorCode) -> None:
            self.found[target] = error
            self.missing -= 1
            if not self.missing and self._wake is not None:
                self._wake()

        return done

    def register(self, wake: Wake) -> bool:
        """Store a handler to wake after the last outcome; False: none is missing."""
        if not self.missing:
            return False
        self._wake = wake
        return True


async def _answer(outcomes: _Outcomes) -> WriteTxnMarkersResponse:
    by_producer: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
    async for (producer_id, key), error in in_steps(outcomes.found.items()):
        rows = by_producer.setdefault(producer_id, {}).setdefault(key.topic, [])
        rows.append(
            WritableTxnMarkerPartitionResult(
                partition_index=key.partition, error_code=error
            )
        )
    pace = Pace()
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(name=name, partitions=rows)
                    async for name, rows in pace.over(topics.items())
                ],
            )
            async for producer_id, topics in pace.over(by_producer.items())
        ]
    )


API: Final = Api(
    key=ApiKey.WRITE_TXN_MARKERS,
    versions=(1, 2),
    request_class=REPLICATION,
    role=Role.BROKER,
    handle=handle,
    access=CLUSTER_ACTION,
    error_answer=ErrorAnswer(
        rows={
            "markers": ("markers",),
            "topics": ("topics",),
            "partitions": ("partition_indexes",),
        }
    ),
)
