"""AlterPartitionReassignments (45): move replicas to other brokers (KIP-455).

Versions: 0.

Behaviour: with one broker a reassignment to the replicas that there are is done as soon
as it is asked for; any other names brokers that are not alive
(INVALID_REPLICA_ASSIGNMENT). There is never one to cancel (null replicas):
NO_REASSIGNMENT_IN_PROGRESS.

Version notes: none.

Left out: moving replicas; it comes with a controller of several brokers.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.answer import Row, answer, failure
from broker.apis.common.api import Api
from broker.apis.common.topic_creation import check_replicas
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.wire.codec import Entity
from broker.requests.classifier import ADMIN
from broker.requests.request import Request


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Answer for each partition."""
    return answer(
        error_code=ErrorCode.none,
        error_message=None,
        responses=[
            Row(
                name=topic.name,
                partitions=[
                    _row(topic.name, each, broker) for each in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )


def _row(topic: str, wanted: Entity, broker: Broker) -> Row:
    outcome = {"error_code": ErrorCode.none, "error_message": None}
    try:
        _check(topic, wanted, broker)
    except KafkaError as error:
        outcome = failure(error)
    return Row(partition_index=wanted.partition_index, **outcome)


def _check(topic: str, wanted: Entity, broker: Broker) -> None:
    known = broker.metadata_cache.topic(topic)
    if known is None or wanted.partition_index not in known.partitions:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"there is no partition {topic}-{wanted.partition_index}",
        )
    if wanted.replicas is None:
        raise KafkaError(ErrorCode.no_reassignment_in_progress)
    check_replicas((tuple(wanted.replicas),), broker.coordinator.live_brokers())


API: Final = Api(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
)
