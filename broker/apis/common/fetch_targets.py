"""The requested and the forgotten partitions of a Fetch, in any version."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import UUID

from broker.cluster.fetch_sessions import Address, Target
from broker.protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from planes.slices import Pace

_NO_ID: Final = UUID(int=0)


def uses_ids(version: int) -> bool:
    """Return whether topics are identified by id (KIP-516)."""
    return version >= 13


async def targets(body: FetchRequest, *, uses_ids: bool) -> Collection[Target]:
    """Return the request's targets, in order.

    A duplicate partition has the position of its first and the fields of its last
    occurrence, as in Kafka's ``LinkedHashMap``.
    """
    found: dict[Address, Target] = {}
    pace = Pace()
    async for topic in pace.over(body.topics):
        named = _topic(topic, uses_ids=uses_ids)
        async for wanted in pace.over(topic.partitions):
            found[named, wanted.partition] = Target(
                named,
                wanted.partition,
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                wanted.current_leader_epoch,
                wanted.last_fetched_epoch,
                wanted.log_start_offset,
            )
    return found.values()


async def forgotten(body: FetchRequest, *, uses_ids: bool) -> list[Address]:
    """Return the partitions to remove from the session (KIP-227)."""
    found: list[Address] = []
    pace = Pace()
    async for topic in pace.over(body.forgotten_topics_data):
        named = _topic(topic, uses_ids=uses_ids)
        async for index in pace.over(topic.partitions):
            found.append((named, index))
    return found


def _topic(topic: FetchTopic | ForgottenTopic, *, uses_ids: bool) -> str | UUID:
    return (topic.topic_id or _NO_ID) if uses_ids else topic.topic
