"""The work of a group's leader: assignment, and watching the assigned topics.

Kafka's ``ConsumerCoordinator.onLeaderElected`` and its ``MetadataSnapshot``.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.client.client_metadata import Metadata, counts_of
from broker.client.consumer.client_assignors import assign
from broker.client.consumer.consumer_protocol import (
    decode_subscription,
    encode_assignment,
)
from broker.client.consumer.group_member import Joined


class GroupLeader:
    """The leader's part of one member, which may become leader any number of times."""

    def __init__(self, metadata: Metadata, rejoin: Callable[[], None]) -> None:
        self._metadata = metadata
        self._rejoin = rejoin
        self._topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}

    def retire(self) -> None:
        """Stop being the leader."""
        self._topics, self._counts = frozenset(), {}

    async def divide(self, joined: Joined) -> dict[str, bytes]:
        """Assign the partitions of all topics of the group to its members."""
        members = {
            each.member_id: decode_subscription(each.subscription, each.instance_id)
            for each in joined.members
        }
        topics = frozenset(t for each in members.values() for t in each.topics)
        if not topics <= counts_of(self._metadata, topics).keys():
            # An unknown topic is requested once, and then watched.
            self._metadata.add(topics)
            self._metadata.request_update()
            await self._metadata.changes.next()
        self._topics = topics
        self._counts = dict(counts_of(self._metadata, topics))
        assignment = assign(joined.protocol, self._counts, members)
        return {
            member: encode_assignment(partitions)
            for member, partitions in assignment.items()
        }

    def check_topics(self) -> None:
        """Start a rebalance if the topics have changed since the assignment.

        During a rebalance the call has no effect, so it is repeated afterwards.
        """
        if self._topics and counts_of(self._metadata, self._topics) != self._counts:
            self._rejoin()

    async def run(self) -> None:
        """Check the topics after each change of the metadata, until cancelled."""
        while True:
            await self._metadata.changes.next()
            self.check_topics()
