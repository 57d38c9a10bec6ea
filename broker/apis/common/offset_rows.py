"""Rows of requests that commit offsets: OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from broker.apis.common.access import allowed_on_topic
from broker.apis.common.answer import NO_ID
from broker.authorization.acls import AclOperation
from broker.groups.committed_offsets import Position
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.requests.request import Request
from planes.slices import Pace


class PartitionRow(Protocol):
    """The offset of one partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class TopicRow(Protocol):
    """The partitions of one topic, which has a name or an id."""

    name: str
    topic_id: UUID | None

    @property
    def partitions(self) -> Sequence[PartitionRow]:
        """The partitions."""


@dataclass(frozen=True, slots=True)
class OffsetRows:
    """The names of the topics in order, and the partitions by outcome.

    ``names`` has the empty string, which is not a valid name, for an unknown id.
    ``refused`` has the partitions that do not exist or may not be read, ``positions``
    all others.
    """

    names: list[str]
    refused: dict[TopicPartition, ErrorCode]
    positions: dict[TopicPartition, Position]


async def sorted_rows(
    request: Request, topics: Sequence[TopicRow], broker: Broker, *, by_id: bool
) -> OffsetRows:
    """Sort the rows of a request, which can be preempted between rows."""
    found = OffsetRows([], {}, {})
    pace = Pace()
    async for topic in pace.over(topics):
        name = topic.name
        if by_id:
            name = broker.metadata_cache.name(topic.topic_id or NO_ID) or ""
        found.names.append(name)
        is_unknown_id = by_id and not name
        known = broker.metadata_cache.topic(name)
        may_read = is_unknown_id or allowed_on_topic(
            request, broker, AclOperation.READ, name
        )
        async for partition in pace.over(topic.partitions):
            target = TopicPartition(name, partition.partition_index)
            if is_unknown_id:
                found.refused[target] = ErrorCode.unknown_topic_id
            elif not may_read:
                found.refused[target] = ErrorCode.topic_authorization_failed
            elif known is None or target.partition not in known.partitions:
                found.refused[target] = ErrorCode.unknown_topic_or_partition
            else:
                found.positions[target] = Position(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
    return found
