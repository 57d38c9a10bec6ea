"""ListPartitionReassignments (46): list the reassignments in progress (KIP-455).

Versions: 0.

Behaviour: the controller lists the reassignments of the requested partitions, or of all
(null): all replicas, and those being added and removed. Other brokers return
NOT_CONTROLLER.

Version notes: none.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.apis.common.collecting import in_order
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, in_steps


async def handle(
    request: Request, body: ListPartitionReassignmentsRequest, broker: Broker
) -> ListPartitionReassignmentsResponse:
    """List the reassignments by topic."""
    try:
        under_way = broker.coordinator.controller.reassignments()
    except KafkaError as refused:
        return ListPartitionReassignmentsResponse(
            error_code=refused.code, error_message=refused.message, topics=[]
        )
    wanted = None
    if body.topics is not None:
        pace = Pace()
        wanted = {
            TopicPartition(topic.name, index)
            async for topic in pace.over(body.topics)
            async for index in pace.over(topic.partition_indexes)
        }
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    async for key in in_steps(await in_order(tuple(under_way))):
        assignment = under_way[key]
        if wanted is None or key in wanted:
            topics.setdefault(key.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=key.partition,
                    replicas=assignment.replicas,
                    adding_replicas=assignment.adding,
                    removing_replicas=assignment.removing,
                )
            )
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=rows)
            for name, rows in topics.items()
        ],
    )


API: Final = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE),
)
