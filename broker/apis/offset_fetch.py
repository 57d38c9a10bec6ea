"""OffsetFetch (9): return the committed offsets of groups.

Versions: 1-10 served, 0-10 advertised (otherwise older librdkafka balances no
consumers).

Behaviour:
- A partition without an offset, and a missing group, have -1 and no error.
- A request for many groups can be preempted between groups.

Version notes:
- Before v2 an error of the group is repeated in each partition; from v2 on null topics
  mean all; v5 adds leader epochs (KIP-320); v6 is flexible; v7 can request stable
  offsets, with UNSTABLE_OFFSET_COMMIT during a pending commit (KIP-447); v8 has several
  groups (KIP-709); v9 has the member, whose epoch is checked in consumer groups
  (KIP-848); v10 identifies topics by id, with UNKNOWN_TOPIC_ID for unknown ones.

Left out: v0 (kept in ZooKeeper).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from broker.apis.common.access import Check, allowed, allowed_on_topic, in_handler
from broker.apis.common.answer import NO_ID
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.collecting import in_order
from broker.apis.common.group_common import by_topic
from broker.authorization.acls import AclOperation, ResourceType
from broker.groups.committed_offsets import OFFSETS_PER_STEP, FetchedOffset
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import GROUP
from broker.requests.request import Request
from planes.slices import Pace, in_steps, preempt

_GROUP_ERROR_SINCE: Final = 2
_GROUPS_SINCE: Final = 8
_TOPIC_IDS_SINCE: Final = 10
_UNKNOWN_ID: Final = FetchedOffset(error=ErrorCode.unknown_topic_id)

Fetched = dict[TopicPartition, FetchedOffset]
_Topic = OffsetFetchRequestTopic | OffsetFetchRequestTopics


async def handle(
    request: Request, body: OffsetFetchRequest, broker: Broker
) -> OffsetFetchResponse:
    """Return the offsets of one or several groups."""
    stable = body.require_stable
    if request.api_version < _GROUPS_SINCE:
        targets = await _targets(body.topics)
        error, fetched = await _fetch(request, broker, body.group_id, targets, stable)
        if error is not ErrorCode.none and request.api_version < _GROUP_ERROR_SINCE:
            failed = FetchedOffset(error=error)
            fetched = dict.fromkeys(targets or (), failed)
        topics = await by_topic(fetched.items(), _row)
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
            error_code=error,
        )
    fetch = _of_group
    if request.api_version >= _TOPIC_IDS_SINCE:
        fetch = _of_group_by_ids
    groups = []
    for group in body.groups:
        groups.append(await fetch(request, broker, group, stable))
        await preempt()
    return OffsetFetchResponse(groups=groups)


async def _of_group(
    request: Request, broker: Broker, group: OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponseGroup:
    error, fetched = await _fetch(
        request,
        broker,
        group.group_id,
        await _targets(group.topics),
        stable,
        (group.member_id, group.member_epoch),
    )
    topics = await by_topic(fetched.items(), _row_of_many)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(name=name, partitions=rows)
            for name, rows in topics.items()
        ],
        error_code=error,
    )


async def _of_group_by_ids(
    request: Request, broker: Broker, group: OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponseGroup:
    """Return offsets by topic id; topics without an id are left out."""
    cache = broker.metadata_cache
    targets: dict[TopicPartition, None] | None = None
    unknown: list[OffsetFetchResponseTopics] = []
    # Ids from the request, since a topic may be deleted meanwhile.
    ids: dict[str, UUID | None] = {}
    pace = Pace()
    if group.topics is not None:
        targets = {}
        async for topic in pace.over(group.topics):
            name = cache.name(topic.topic_id or NO_ID)
            if name is None:
                unknown.append(
                    OffsetFetchResponseTopics(
                        topic_id=topic.topic_id,
                        partitions=[
                            _row_of_many(index, _UNKNOWN_ID)
                            async for index in pace.over(topic.partition_indexes)
                        ],
                    )
                )
                continue
            ids[name] = topic.topic_id
            async for index in pace.over(topic.partition_indexes):
                targets[TopicPartition(name, index)] = None
    member = (group.member_id, group.member_epoch)
    error, fetched = await _fetch(
        request, broker, group.group_id, targets, stable, member
    )
    if error is not ErrorCode.none:
        return OffsetFetchResponseGroup(
            group_id=group.group_id, topics=(), error_code=error
        )
    found = await by_topic(fetched.items(), _row_of_many)
    topics: list[OffsetFetchResponseTopics] = []
    async for name, rows in pace.over(found.items()):
        known = cache.topic(name)
        topic_id = ids.get(name) or (known.topic_id if known else None)
        if topic_id is not None:
            topics.append(OffsetFetchResponseTopics(topic_id=topic_id, partitions=rows))
    topics += unknown
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


async def _fetch(
    request: Request,
    broker: Broker,
    group_id: str,
    named: Iterable[TopicPartition] | None,
    stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> tuple[ErrorCode, Fetched]:
    """Return the error of the group, or its offsets; ``named`` None: all offsets.

    ``member`` is the sender in a consumer group, with its epoch.
    """
    if not allowed(
        request, broker, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
    ):
        return ErrorCode.group_authorization_failed, {}
    offsets = broker.groups.offsets
    fetched: Fetched = {}
    try:
        if named is None:
            group = broker.groups.describe(group_id)
            known = () if group is None else tuple(group.offsets)
            targets: Iterator[TopicPartition] = await in_order(known)
        else:
            targets = iter(named)
        while some := tuple(islice(targets, OFFSETS_PER_STEP)):
            fetched |= offsets.fetch(
                group_id, some, require_stable=stable, member=member
            )
            await preempt()
        if not fetched:
            # Raises an error of the group, if there is one.
            fetched = offsets.fetch(group_id, (), require_stable=stable, member=member)
    except KafkaError as refused:
        return refused.code, {}
    if broker.authorizer is not None:
        fetched = await _visible(request, broker, fetched, is_named=named is not None)
    return ErrorCode.none, fetched


async def _visible(
    request: Request, broker: Broker, fetched: Fetched, *, is_named: bool
) -> Fetched:
    """Return the offsets of topics that the client may describe.

    Other requested topics have an error.
    """
    visible: Fetched = {}
    failed = FetchedOffset(error=ErrorCode.topic_authorization_failed)
    async for target, offset in in_steps(fetched.items()):
        if allowed_on_topic(
            request,
            broker,
            AclOperation.DESCRIBE,
            target.topic,
            logs_denial=is_named,
        ):
            visible[target] = offset
        elif is_named:
            visible[target] = failed
    return visible


async def _targets(
    topics: Iterable[_Topic] | None,
) -> dict[TopicPartition, None] | None:
    if topics is None:
        return None
    pace = Pace()
    return {
        TopicPartition(topic.name, partition): None
        async for topic in pace.over(topics)
        async for partition in pace.over(topic.partition_indexes)
    }


def _row(index: int, one: FetchedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=one.error,
    )


def _row_of_many(index: int, one: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=one.error,
    )


API: Final = Api(
    key=ApiKey.OFFSET_FETCH,
    versions=(1, 10),
    advertised_from=0,
    request_class=GROUP,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.GROUP),
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.coordinator_load_in_progress,
        rows={
            "groups": ("groups",),
            "topics": ("topics",),
            "partitions": ("partition_indexes",),
        },
    ),
)
