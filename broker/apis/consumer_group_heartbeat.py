"""ConsumerGroupHeartbeat (68): a member of a consumer group is alive (KIP-848).

Versions: 0-1.

Behaviour:
- A member joins with epoch 0 and leaves with -1; a static member leaves temporarily
  with -2. Other heartbeats report owned partitions, and receive assigned ones.
- The response is sent once all changes are in ``__consumer_offsets``.
- UNSUPPORTED_VERSION unless ``group.version`` 1 is finalized.
- A request can be preempted while its group is assigned partitions.

Version notes:
- In v0 the coordinator generates member ids; from v1 on clients generate them, and may
  subscribe by a regular expression.

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from uuid import UUID

from broker.apis.common.access import Check, allowed_on_topic, denied, on_group
from broker.apis.common.answer import NO_ID, to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import answer_to, require_consumer_groups
from broker.apis.common.log_steps import preemptibly
from broker.authorization.acls import AclOperation, ResourceType
from broker.groups.consumer.assignors import ASSIGNORS
from broker.groups.consumer.consumer_group_messages import (
    ConsumerHeartbeat,
    HeartbeatAnswer,
)
from broker.groups.consumer.members import STATIC_LEAVING_EPOCH
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from planes.slices import Pace, in_steps

# The first version in which clients generate their ids.
_OWN_IDS_SINCE: Final = 1


async def handle(
    request: Request, body: ConsumerGroupHeartbeatRequest, broker: Broker
) -> ConsumerGroupHeartbeatResponse:
    """Store the member's fields, and move it towards its target."""
    try:
        require_consumer_groups(broker)
        _validate(body, request.api_version)
        heartbeat = await _heartbeat(request, body, broker)
        steps = broker.groups.consumer_heartbeat(heartbeat)
        answer = await answer_to(await preemptibly(steps))
    except KafkaError as refused:
        return ConsumerGroupHeartbeatResponse(
            error_code=refused.code,
            error_message=refused.message,
            member_epoch=0,
            heartbeat_interval=timedelta(0),
        )
    return await _answer(answer)


def _validate(body: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise `KafkaError` for an invalid request, with Kafka's messages and order."""
    epoch = body.member_epoch
    if not body.member_id and (version >= _OWN_IDS_SINCE or epoch > 0 or epoch == -1):
        raise _invalid("MemberId can't be empty.")
    for name, value in (
        ("GroupId", body.group_id),
        ("InstanceId", body.instance_id),
        ("RackId", body.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == 0:
        _validate_join(body)
    elif epoch == STATIC_LEAVING_EPOCH and body.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if body.server_assignor is not None and body.server_assignor not in ASSIGNORS:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {body.server_assignor} is not supported. Supported "
            f"assignors: {', '.join(ASSIGNORS)}.",
        )


def _validate_join(body: ConsumerGroupHeartbeatRequest) -> None:
    if to_ms(body.rebalance_timeout) == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if body.topic_partitions is None or len(body.topic_partitions):
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


async def _heartbeat(
    request: Request, body: ConsumerGroupHeartbeatRequest, broker: Broker
) -> ConsumerHeartbeat:
    pace = Pace()
    topics: frozenset[str] | None = None
    if body.subscribed_topic_names is not None:
        topics = frozenset([it async for it in pace.over(body.subscribed_topic_names)])
        async for topic in pace.over(topics):
            if not allowed_on_topic(request, broker, AclOperation.DESCRIBE, topic):
                raise denied(ResourceType.TOPIC)

    def may_describe(topic: str) -> bool:
        return allowed_on_topic(
            request, broker, AclOperation.DESCRIBE, topic, logs_denial=False
        )

    return ConsumerHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        client_id=request.client_id,
        client_host=f"/{request.peer.host}",
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=to_ms(body.rebalance_timeout),
        topics=topics,
        regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=await _owned(body),
        may_describe=may_describe,
    )


async def _owned(
    body: ConsumerGroupHeartbeatRequest,
) -> Mapping[UUID, frozenset[int]] | None:
    if body.topic_partitions is None:
        return None
    pace = Pace()
    owned: dict[UUID, frozenset[int]] = {}
    async for topic in pace.over(body.topic_partitions):
        topic_id = topic.topic_id or NO_ID
        partitions = [it async for it in pace.over(topic.partitions)]
        owned[topic_id] = owned.get(topic_id, frozenset()).union(partitions)
    return owned


async def _answer(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    if answer.error is not ErrorCode.none:
        return ConsumerGroupHeartbeatResponse(
            error_code=answer.error, member_epoch=0, heartbeat_interval=timedelta(0)
        )
    assignment = None
    if answer.assigned is not None:
        assignment = Assignment(
            topic_partitions=[
                ResponseTopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
                async for topic_id, epochs in in_steps(answer.assigned.items())
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.none,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval=timedelta(milliseconds=answer.interval_ms),
        assignment=assignment,
    )


API: Final = Api(
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=(0, 1),
    request_class=GROUP,
    handle=handle,
    access=on_group(
        AclOperation.READ, Check(AclOperation.DESCRIBE, ResourceType.TOPIC)
    ),
    error_answer=ErrorAnswer(try_again=ErrorCode.coordinator_not_available),
)
