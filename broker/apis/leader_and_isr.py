"""LeaderAndIsr (4): the controller assigns leaders and followers of partitions.

Versions: 0-7.

Behaviour:
- Fencing is that of Kafka 3.9: broker epoch (STALE_BROKER_EPOCH), controller epoch
  (STALE_CONTROLLER_EPOCH, both for the whole request), then for each partition topic id
  (INCONSISTENT_TOPIC_ID), leader epoch (STALE_CONTROLLER_EPOCH unless it is newer) and
  replicas (UNKNOWN_TOPIC_OR_PARTITION if this broker is not one of them).
- If the configs of new topics cannot be read, because the ZooKeeper session has
  expired, the whole request fails without a change. The controller repeats it after the
  broker has registered again.
- Requests in purgatories for a partition that has moved complete at once.
- The request can be preempted between partitions, under the lock of state changes.
  Other controller requests, and creations and deletions of topics, therefore see all
  its changes or none, as under Kafka's ``replicaStateChangeLock``.

Version notes: v1 adds is_new, v2 broker epochs (KIP-380), v3 reassignment (KIP-455), v4
is flexible, v5 adds topic ids (KIP-516), v6 the leader recovery state, v7 the mark of a
KRaft controller, which may repeat a leader epoch (KIP-866).

Left out: leader recovery (KIP-704).
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import CLUSTER_ACTION
from broker.apis.common.api import Api
from broker.apis.common.log_steps import preemptibly
from broker.cluster.replica_commands import states_of
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.message import Versioned
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import CONTROL
from broker.requests.entitlement import Role
from broker.requests.request import Request
from planes.slices import in_steps


async def handle(request: Request, body: Versioned, broker: Broker) -> Versioned:
    """Change the state of the partitions."""
    command = await preemptibly(LeaderAndIsrRequest.reading(body))
    if not await broker.is_meant(command.controller_epoch, command.broker_epoch):
        answer = LeaderAndIsrResponse(error_code=ErrorCode.stale_broker_epoch)
    else:
        answer = await _obey(command, broker)
    return await preemptibly(answer.writing(request.api_version))


async def _obey(command: LeaderAndIsrRequest, broker: Broker) -> LeaderAndIsrResponse:
    try:
        # The creation of logs needs the configs of their topics.
        await broker.coordinator.membership.read_topic_configs(
            await _new_topics(command, broker)
        )
    except KafkaError as refused:
        return LeaderAndIsrResponse(error_code=refused.code)
    await broker.checkpoint_deletions()
    return await broker.replicas.change_leadership(command)


async def _new_topics(command: LeaderAndIsrRequest, broker: Broker) -> list[str]:
    """Return the topics of which this broker gets further replicas."""
    held = broker.replicas.partitions
    names: dict[str, None] = {}
    async for topic, state in in_steps(states_of(command)):
        if TopicPartition(topic.topic_name, state.partition_index) not in held:
            names[topic.topic_name] = None
    return list(names)


API: Final = Api(
    key=ApiKey.LEADER_AND_ISR,
    versions=(0, 7),
    request_class=CONTROL,
    handle=handle,
    access=CLUSTER_ACTION,
    role=Role.CONTROLLER,
)
