"""AlterPartition (56): a leader proposes an ISR, the controller decides (KIP-497).

Versions: 2-3.

Behaviour:
- Errors of the whole request are NOT_CONTROLLER if another broker is controller, and
  STALE_BROKER_EPOCH for an earlier registration of the requesting broker.
- Errors of a partition: FENCED_LEADER_EPOCH and INVALID_UPDATE_VERSION for epochs older
  than the controller's; NOT_CONTROLLER for newer ones; INELIGIBLE_REPLICA for a replica
  whose broker is stopping or lost (KIP-841); NEW_LEADER_ELECTED if the new ISR
  completes a reassignment that moves the leader; UNKNOWN_TOPIC_ID.
- An accepted proposal is durable, and the response has the new state.

Version notes: v3 has the epochs of the brokers in the new ISR (KIP-903).

Left out: judging these epochs, as in Kafka under ZooKeeper; v0 and v1, which name
topics by name, and which brokers before Kafka 3.3 speak.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import CLUSTER_ACTION
from broker.apis.common.answer import NO_ID
from broker.apis.common.api import Api
from broker.controller.isr_proposals import IsrProposal, Judgement
from broker.controller.leadership import Leadership
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import CONTROL
from broker.requests.entitlement import Role
from broker.requests.request import Request
from planes.slices import Pace

_WITH_EPOCHS: Final = 3
# Fields of a row with an error.
_NOTHING: Final = Leadership(
    leader=0, leader_epoch=0, isr=(), controller_epoch=0, version=0
)


async def handle(
    request: Request, body: AlterPartitionRequest, broker: Broker
) -> AlterPartitionResponse:
    """Return the controller's decision on each proposal."""
    coordinator = broker.coordinator
    pace = Pace()
    try:
        names = [
            coordinator.controller.topic_name(topic.topic_id or NO_ID)
            async for topic in pace.over(body.topics)
        ]
        judgements = await coordinator.controller.alter_partition(
            body.broker_id,
            body.broker_epoch,
            {
                TopicPartition(name, each.partition_index): _proposal(
                    each, request.api_version
                )
                async for name, topic in pace.over(zip(names, body.topics, strict=True))
                if name is not None
                async for each in pace.over(topic.partitions)
            },
        )
    except KafkaError as refused:
        return AlterPartitionResponse(error_code=refused.code, topics=())
    topics = [
        ResponseTopicData(
            topic_id=topic.topic_id,
            partitions=[
                _row(
                    each.partition_index,
                    ErrorCode.unknown_topic_id
                    if name is None
                    else judgements[TopicPartition(name, each.partition_index)],
                )
                async for each in pace.over(topic.partitions)
            ],
        )
        async for name, topic in pace.over(zip(names, body.topics, strict=True))
    ]
    return AlterPartitionResponse(error_code=ErrorCode.none, topics=topics)


def _proposal(each: RequestPartitionData, version: int) -> IsrProposal:
    isr = (
        [broker.broker_id for broker in each.new_isr_with_epochs]
        if version >= _WITH_EPOCHS
        else each.new_isr
    )
    return IsrProposal(
        leader_epoch=each.leader_epoch,
        partition_epoch=each.partition_epoch,
        isr=tuple(map(int, isr)),
        recovery_state=each.leader_recovery_state,
    )


def _row(index: int, judgement: Judgement) -> ResponsePartitionData:
    error, held = ErrorCode.none, _NOTHING
    if isinstance(judgement, Leadership):
        held = judgement
    else:
        error = judgement
    return ResponsePartitionData(
        partition_index=index,
        error_code=error,
        leader_id=held.leader,
        leader_epoch=held.leader_epoch,
        isr=held.isr,
        leader_recovery_state=held.recovery_state,
        partition_epoch=held.version,
    )


API: Final = Api(
    key=ApiKey.ALTER_PARTITION,
    versions=(2, 3),
    request_class=CONTROL,
    handle=handle,
    access=CLUSTER_ACTION,
    role=Role.BROKER,
)
