"""OffsetFetch: how far a group has come.

Versions: 0-9 advertised, 1-9 served.
Behaviour: a partition without an offset, and a group that is not there, answer -1 and
no error.
Version notes: before 2 an error of the group stands at each partition; from 2 on null
topics mean all; 5 carries leader epochs; 7 can ask for stable offsets, which a commit
under way makes UNSTABLE_OFFSET_COMMIT (KIP-447); 8 asks for many groups at once.
Left out: version 0 (kept in ZooKeeper); topic ids (10); member epochs of the consumer
protocol (KIP-848), which classic groups do not check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.offset_fetch import v7, v9
from kio.schema.offset_fetch.v7 import response as single
from kio.schema.offset_fetch.v9 import response as many
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from broker.apis.group_common import by_topic
from broker.apis.registry import NO_THROTTLE
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode, KafkaError
from broker.groups.commits import FetchedOffset
from broker.groups.offset_store import TopicPartition
from broker.request import Request
from broker.wire.codec import Entity
from planes.slices import preempt

_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_GROUPS = 8

Fetched = dict[TopicPartition, FetchedOffset]


async def handle(request: Request, body: Entity, broker: Broker) -> Entity:
    """Look up the offsets of one group, or of many."""
    stable = getattr(body, "require_stable", False)
    if request.api_version < _FIRST_WITH_GROUPS:
        error, fetched = _fetch(broker, body.group_id, body.topics, stable)
        return _single(request.api_version, body, error, fetched)
    groups = []
    for group in body.groups:
        error, fetched = _fetch(broker, group.group_id, group.topics, stable)
        groups.append(
            many.OffsetFetchResponseGroup(
                group_id=GroupId(group.group_id),
                topics=_topics(
                    many.OffsetFetchResponseTopics,
                    many.OffsetFetchResponsePartitions,
                    fetched,
                ),
                error_code=error,
            )
        )
        await preempt()
    return v9.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _fetch(
    broker: Broker, group_id: str, topics: Iterable[Entity] | None, stable: bool
) -> tuple[ErrorCode, Fetched]:
    """Return the error of the group, or its offsets; null topics: all of them."""
    offsets = broker.groups.offsets
    try:
        if topics is None:
            return ErrorCode.none, offsets.fetch_all(group_id, require_stable=stable)
        targets = _targets(topics)
        return ErrorCode.none, offsets.fetch(group_id, targets, require_stable=stable)
    except KafkaError as refused:
        return refused.code, {}


def _targets(topics: Iterable[Entity]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition)
        for topic in topics
        for partition in topic.partition_indexes
    ]


def _single(
    version: int, body: Entity, error: ErrorCode, fetched: Fetched
) -> v7.OffsetFetchResponse:
    if error is not ErrorCode.none and version < _FIRST_WITH_GROUP_ERROR:
        fetched = dict.fromkeys(_targets(body.topics), FetchedOffset(error=error))
    return v7.OffsetFetchResponse(
        throttle_time=NO_THROTTLE,
        topics=_topics(
            single.OffsetFetchResponseTopic,
            single.OffsetFetchResponsePartition,
            fetched,
        ),
        error_code=error,
    )


def _topics(topic_type: Any, partition_type: Any, fetched: Fetched) -> tuple[Any, ...]:
    """Return the offsets as topics of the version's own types."""
    return tuple(
        topic_type(
            name=TopicName(topic),
            partitions=tuple(
                partition_type(
                    partition_index=i32(partition),
                    committed_offset=i64(one.offset),
                    committed_leader_epoch=i32(one.leader_epoch),
                    metadata=one.metadata,
                    error_code=one.error,
                )
                for partition, one in partitions
            ),
        )
        for topic, partitions in by_topic(fetched.items())
    )
