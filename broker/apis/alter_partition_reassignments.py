"""AlterPartitionReassignments (45): move replicas to other brokers (KIP-455).

Versions: 0-1.

Behaviour: the controller begins each reassignment, or cancels it (null replicas); the
change is durable before the response. Errors: INVALID_REPLICA_ASSIGNMENT for an empty
list of replicas, a duplicate, or a broker that is not alive;
NO_REASSIGNMENT_IN_PROGRESS if there is none to cancel; NOT_CONTROLLER for all
partitions if another broker is controller.

Version notes: v1 can forbid a change of the number of replicas (KIP-860), with
INVALID_REPLICATION_FACTOR.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace


async def handle(
    request: Request, body: AlterPartitionReassignmentsRequest, broker: Broker
) -> AlterPartitionReassignmentsResponse:
    """Reassign, or cancel, each partition."""
    pace = Pace()
    wanted = {
        TopicPartition(topic.name, each.partition_index): (
            None if each.replicas is None else tuple(map(int, each.replicas))
        )
        async for topic in pace.over(body.topics)
        async for each in pace.over(topic.partitions)
    }
    try:
        refusals = await broker.coordinator.controller.alter_partition_reassignments(
            wanted, keep_replication_factor=not body.allow_replication_factor_change
        )
    except KafkaError as refused:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=body.allow_replication_factor_change,
            error_code=refused.code,
            error_message=refused.message,
            responses=[],
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _row(
                        each.partition_index,
                        refusals[TopicPartition(topic.name, each.partition_index)],
                    )
                    async for each in pace.over(topic.partitions)
                ],
            )
            async for topic in pace.over(body.topics)
        ],
    )


def _row(index: int, refusal: KafkaError | None) -> ReassignablePartitionResponse:
    outcome = NO_ERROR if refusal is None else refusal
    return ReassignablePartitionResponse(
        partition_index=index, error_code=outcome.code, error_message=outcome.message
    )


API: Final = Api(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
)
