"""ElectLeaders (43): elect preferred or unclean leaders (KIP-183, KIP-460).

Versions: 0-2.

Behaviour: the controller elects; other brokers return NOT_CONTROLLER.
ELECTION_NOT_NEEDED is returned if the preferred replica leads, or in an unclean
election if there is a leader, PREFERRED_LEADER_NOT_AVAILABLE or
ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica is eligible. The response is sent once the
controller's own metadata has the new leaders, or with REQUEST_TIMED_OUT. In a request
for all partitions (null), those without an election are left out of the response, as in
Kafka. An unknown election type is INVALID_REQUEST, unless the request has no partition.

Version notes: v1 has the election type, v2 is flexible.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.answer import to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation
from broker.controller.elections import ElectionType
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, in_steps

_MESSAGES: Final = {
    ErrorCode.none: None,
    ErrorCode.invalid_request: "There is no election of this type.",
    ErrorCode.unknown_topic_or_partition: "The partition does not exist.",
    ErrorCode.eligible_leaders_not_available: "No replica can lead the partition.",
    ErrorCode.preferred_leader_not_available: "The preferred replica is not in sync.",
    ErrorCode.election_not_needed: "The partition has its leader.",
}


async def handle(
    request: Request, body: ElectLeadersRequest, broker: Broker
) -> ElectLeadersResponse:
    """Elect leaders, and return the outcome of each partition."""
    number = body.election_type
    everyone = body.topic_partitions is None
    wanted = None if everyone else await _named(body)
    if number in tuple(ElectionType):
        kind = ElectionType(number)
        timeout_ms = to_ms(body.timeout)
        try:
            outcomes = await broker.coordinator.controller.elect_leaders(
                wanted, kind, timeout_ms
            )
        except KafkaError as refused:
            return ElectLeadersResponse(
                error_code=refused.code, replica_election_results=[]
            )
        error = ErrorCode.none
    else:
        error = ErrorCode.invalid_request if wanted != [] else ErrorCode.none
        outcomes = {key: error async for key in in_steps(wanted or ())}
    topics: dict[str, list[PartitionResult]] = {}
    # A duplicate partition has two rows, as in Kafka.
    async for key in in_steps(outcomes if wanted is None else wanted):
        outcome = outcomes[key]
        if not (everyone and outcome is ErrorCode.election_not_needed):
            topics.setdefault(key.topic, []).append(
                PartitionResult(
                    partition_id=key.partition,
                    error_code=outcome,
                    error_message=_MESSAGES.get(outcome, outcome.name),
                )
            )
    return ElectLeadersResponse(
        error_code=error,
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=rows)
            for topic, rows in topics.items()
        ],
    )


async def _named(body: ElectLeadersRequest) -> list[TopicPartition]:
    pace = Pace()
    return [
        TopicPartition(each.topic, index)
        async for each in pace.over(body.topic_partitions or ())
        async for index in pace.over(each.partitions)
    ]


API: Final = Api(
    key=ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
    error_answer=ErrorAnswer(
        rows={
            "replica_election_results": ("topic_partitions",),
            "partition_result": ("partitions",),
        }
    ),
)
