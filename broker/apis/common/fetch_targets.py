"""What a Fetch asks for, whatever its version: targets, and what to forget."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from broker.cluster.fetch_sessions import Target
from broker.protocol.wire.codec import Entity

_NO_ID: Final = UUID(int=0)


def uses_ids(version: int) -> bool:
    """Tell whether topics are named by id (KIP-516)."""
    return version >= 13


def targets(body: Entity, version: int) -> list[Target]:
    """Return what the request asks of each partition, in its order."""
    return [
        Target(
            _topic(topic, version),
            wanted.partition,
            wanted.fetch_offset,
            wanted.partition_max_bytes,
            wanted.current_leader_epoch if version >= 9 else -1,
            wanted.last_fetched_epoch if version >= 12 else -1,
            wanted.log_start_offset if version >= 5 else -1,
        )
        for topic in body.topics
        for wanted in topic.partitions
    ]


def forgotten(body: Entity, version: int) -> list[tuple[str | UUID, int]]:
    """Return the partitions that the session is to forget (KIP-227)."""
    return [
        (_topic(topic, version), index)
        for topic in (body.forgotten_topics_data if version >= 7 else ())
        for index in topic.partitions
    ]


def _topic(topic: Entity, version: int) -> str | UUID:
    if uses_ids(version):
        named: UUID = topic.topic_id or _NO_ID
        return named
    name: str = topic.topic
    return name
