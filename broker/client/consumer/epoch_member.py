"""A member's side of the protocol of KIP-848: heartbeats, and an epoch of its own.

Kafka's ``ConsumerHeartbeatRequestManager``. A heartbeat has the fields that have
changed since the last answered one; the first heartbeat, and the one after an error,
have all fields. `ConsumerMembership` decides when to send heartbeats.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.consumer_config import (
    GROUP_REMOTE_ASSIGNOR,
    MAX_POLL_INTERVAL_MS,
)
from broker.client.consumer.coordinated_member import NO_GENERATION, CoordinatedMember
from broker.client.network_client import NetworkClient
from broker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

_JOINING: Final = 0
_LEAVING: Final = -1
# The epoch of a static member that leaves temporarily.
_STATIC_LEAVING: Final = -2
_UNCHANGED: Final = timedelta(milliseconds=-1)

# Partitions by topic id.
ByTopicId = Mapping[UUID, Sequence[int]]


class _SentFields(NamedTuple):
    """The fields of a heartbeat that are omitted while unchanged."""

    topics: frozenset[str]
    owned: ByTopicId


class EpochMember(CoordinatedMember):
    """One member of one consumer group, which generates its own id."""

    has_epochs = True

    def __init__(
        self,
        config: ClientConfig,
        client: NetworkClient,
        metadata: Metadata,
        rng: random.Random,
    ) -> None:
        super().__init__(config, client, metadata)
        number = UUID(int=rng.getrandbits(128), version=4)
        self.member_id = base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")
        self._assignor = config[GROUP_REMOTE_ASSIGNOR]
        self._rebalance_timeout = timedelta(milliseconds=config[MAX_POLL_INTERVAL_MS])
        self._sent: _SentFields | None = None

    def has_sent(self, topics: frozenset[str], owned: ByTopicId) -> bool:
        """Return whether the coordinator has received these topics and partitions."""
        return self._sent == (topics, owned)

    def clear_sent_fields(self) -> None:
        """Send all fields in the next heartbeat, so that its response has them, too."""
        self._sent = None

    async def heartbeat(
        self, topics: frozenset[str], owned: ByTopicId
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, and adopt the epoch of the response.

        Raises `KafkaError`; the next heartbeat then has all fields.
        """
        sent, self._sent = self._sent, None
        joins = self.generation == NO_GENERATION
        is_full = joins or sent is None
        owned = {} if joins else owned
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=_JOINING if joins else self.generation,
            instance_id=self.instance_id,
            rebalance_timeout=self._rebalance_timeout if is_full else _UNCHANGED,
            subscribed_topic_names=(
                sorted(topics) if sent is None or sent.topics != topics else None
            ),
            server_assignor=self._assignor if is_full else None,
            topic_partitions=(
                [
                    RequestTopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in owned.items()
                ]
                if is_full or sent is None or sent.owned != owned
                else None
            ),
        )
        before = self.current
        answer = await self.call(request)
        if before == self.current:
            self._sent = _SentFields(topics, owned)
            self.generation = answer.member_epoch
            self.last = self.current
        return answer

    async def leave(self) -> None:
        """Leave the group; a static member leaves temporarily."""
        if self.generation == NO_GENERATION:
            return
        epoch = _LEAVING if self.instance_id is None else _STATIC_LEAVING
        self.reset(keep_id=True)
        await self.call(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                topic_partitions=None,
            )
        )

    def reset(self, *, keep_id: bool) -> None:
        """Drop the epoch; the id is kept as long as the process runs."""
        super().reset(keep_id=True)
        self._sent = None
