"""ConsumerGroupDescribe (69): members, epochs and assignments of consumer groups.

Versions: 0-1.

Behaviour:
- A missing group, or a classic one, is GROUP_ID_NOT_FOUND.
- A group with topics that the client may not describe is TOPIC_AUTHORIZATION_FAILED.
- A request can be preempted between groups and between members.

Version notes:
- v1 reports the protocol of each member.

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from broker.apis.common.access import Check, allowed_on_topic, check, in_handler
from broker.apis.common.answer import NOT_ASKED
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.group_common import described, require_consumer_groups
from broker.authorization.acls import AclOperation, ResourceType
from broker.groups.consumer.assignors import NOTHING
from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer.members import ConsumerMember
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, preempt

_CLASSIC: Final = 0
_CONSUMER: Final = 1
_HIDDEN: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)


async def handle(
    request: Request, body: ConsumerGroupDescribeRequest, broker: Broker
) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    rows = await described(
        request,
        broker,
        body.group_ids,
        _describe,
        with_operations=body.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=rows)


async def _describe(request: Request, group_id: str, broker: Broker) -> DescribedGroup:
    try:
        require_consumer_groups(broker)
        check(request, broker, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.groups.describe(group_id)
        if group is None:
            raise KafkaError(
                ErrorCode.group_id_not_found, f"Group {group_id} not found."
            )
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"Group {group_id} is not a consumer group.",
            )
        members = [
            await _member(group, member, broker)
            for member in tuple(group.members.values())
        ]
        await _require_topics(request, broker, members)
    except KafkaError as refused:
        return DescribedGroup(
            error_code=refused.code,
            error_message=refused.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=(),
            authorized_operations=NOT_ASKED,
        )
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=broker.groups.assignor_of(group),
        members=members,
        authorized_operations=NOT_ASKED,
    )


async def _member(
    group: ConsumerGroup, member: ConsumerMember, broker: Broker
) -> Member:
    held: dict[UUID, set[int]] = {}
    for each in (member.assigned, member.revoking):
        for topic_id, epochs in each.items():
            held.setdefault(topic_id, set()).update(epochs)
    target = group.targets.get(member.member_id, NOTHING)
    row = Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=await _assignment(held, broker),
        target_assignment=await _assignment(target, broker),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )
    await preempt()
    return row


async def _assignment(
    partitions: Mapping[UUID, frozenset[int] | set[int]], broker: Broker
) -> Assignment:
    rows = []
    async for topic_id, indexes in Pace().over(tuple(partitions.items())):
        name = broker.metadata_cache.name(topic_id)
        if name is not None:
            rows.append(
                TopicPartitions(
                    topic_id=topic_id, topic_name=name, partitions=sorted(indexes)
                )
            )
    return Assignment(topic_partitions=rows)


async def _require_topics(
    request: Request, broker: Broker, members: Sequence[Member]
) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED if the client may not describe a topic."""
    if broker.authorizer is None:
        return
    names: set[str] = set()
    pace = Pace()
    async for member in pace.over(members):
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            async for topic in pace.over(assignment.topic_partitions):
                names.add(topic.topic_name)
    async for name in pace.over(names):
        if not allowed_on_topic(
            request, broker, AclOperation.DESCRIBE, name, logs_denial=False
        ):
            raise KafkaError(ErrorCode.topic_authorization_failed, _HIDDEN)


API: Final = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.GROUP),
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_not_available,
        rows={"groups": ("group_ids",)},
    ),
)
