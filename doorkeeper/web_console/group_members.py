"""The members of a group and their partitions, under either of Kafka's protocols.

A coordinator describes groups of KIP-848 through a separate API, and lists their type
as ``consumer``. Members of a classic group encode their assignments themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.client.admin import KafkaAdmin
from broker.client.consumer.consumer_protocol import decode_assignment
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages import consumer_group_describe, describe_groups
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.cluster_view import Group

# Kafka's GroupType.CONSUMER; the protocol type of consumers' groups has the same name.
_CONSUMER: Final = "consumer"


class Member(NamedTuple):
    """A member; ``partitions`` is None if its assignment is not readable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: Sequence[TopicPartition] | None


class Membership(NamedTuple):
    """A group as its coordinator describes it."""

    state: str
    assignor: str
    members: Sequence[Member]


async def membership(admin: KafkaAdmin, name: str, group: Group) -> Membership:
    """Query a group's coordinator; raises `KafkaError`."""
    if (group.listed.group_type or "").lower() == _CONSUMER:
        (new,) = await admin.describe_consumer_groups(group.coordinator_id, [name])
        _check(new.error_code, new.error_message)
        members = [_of_consumer(it) for it in new.members]
        return Membership(new.group_state, new.assignor_name, members)
    (found,) = await admin.describe_groups(group.coordinator_id, [name])
    _check(found.error_code, found.error_message)
    is_of_consumers = found.protocol_type == _CONSUMER
    members = [_of_classic(it, is_of_consumers) for it in found.members]
    return Membership(found.group_state, found.protocol_data, members)


def _check(code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        raise KafkaError(code, message or None)


def _of_consumer(member: consumer_group_describe.Member) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        [
            TopicPartition(topic.topic_name, it)
            for topic in member.assignment.topic_partitions
            for it in topic.partitions
        ],
    )


def _of_classic(
    member: describe_groups.DescribedGroupMember, is_of_consumers: bool
) -> Member:
    partitions: Sequence[TopicPartition] | None = ()
    if is_of_consumers:
        try:
            partitions = decode_assignment(member.member_assignment)
        except KafkaError:
            partitions = None
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        partitions,
    )
