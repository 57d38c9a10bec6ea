"""A member's side of the classic group protocol.

Kafka's ``AbstractCoordinator``: joining (KIP-394's two steps), syncing, heartbeats,
leaving, static membership (KIP-345). `ConsumerCoordinator` calls these methods, and
decodes the assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from broker.client.client_config import ClientConfig
from broker.client.client_metadata import Metadata
from broker.client.consumer.consumer_config import (
    MAX_POLL_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
)
from broker.client.consumer.coordinated_member import NO_GENERATION, CoordinatedMember
from broker.client.network_client import NetworkClient
from broker.client.retriable_errors import check
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.heartbeat import HeartbeatRequest
from broker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from broker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

_PROTOCOL_TYPE: Final = "consumer"
# Added to the rebalance timeout, after which the coordinator answers joins.
_JOIN_LAPSE_S: Final = 5.0
# Errors for a member id or generation that the coordinator does not know.
REMOVED: Final = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})


class Subscribed(NamedTuple):
    """A member in the leader's response; the subscription is encoded."""

    member_id: str
    instance_id: str | None
    subscription: bytes


class Joined(NamedTuple):
    """The result of a join; only the group's leader receives ``members``."""

    protocol: str
    leads: bool
    skips_assignment: bool
    members: tuple[Subscribed, ...]


class GroupMember(CoordinatedMember):
    """One member of one group."""

    def __init__(
        self, config: ClientConfig, client: NetworkClient, metadata: Metadata
    ) -> None:
        super().__init__(config, client, metadata)
        self._protocol: str | None = None
        self._session_ms = config[SESSION_TIMEOUT_MS]
        self._rebalance_ms = config[MAX_POLL_INTERVAL_MS]

    # ---- membership -----------------------------------------------------------------

    async def join(self, protocols: Mapping[str, bytes]) -> Joined:
        """Join with a subscription per strategy, and wait for the other members."""
        try:
            return await self._join(protocols)
        except KafkaError as error:
            if error.code is not ErrorCode.member_id_required:
                raise
        return await self._join(protocols)

    async def _join(self, protocols: Mapping[str, bytes]) -> Joined:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout=timedelta(milliseconds=self._session_ms),
            rebalance_timeout=timedelta(milliseconds=self._rebalance_ms),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
        )
        timeout_s = self._rebalance_ms / 1000 + _JOIN_LAPSE_S
        coordinator = await self.coordinator()
        try:
            joined = await self._client.call(coordinator, request, timeout_s)
            if joined.error_code is ErrorCode.member_id_required:
                self.member_id = joined.member_id
            check(joined.error_code, f"cannot join {self.group}")
        except KafkaError as error:
            self.note_error(error.code)
            raise
        self.member_id = joined.member_id
        self.generation = joined.generation_id
        self._protocol = joined.protocol_name or ""
        members = (
            Subscribed(
                each.member_id,
                each.group_instance_id,
                each.metadata,
            )
            for each in joined.members
        )
        return Joined(
            self._protocol,
            joined.leader == joined.member_id,
            joined.skip_assignment,
            tuple(members),
        )

    async def sync(self, assignments: Mapping[str, bytes]) -> bytes:
        """Send the assignments, if this is the leader, and return this member's."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        answer = await self.call(request, self._rebalance_ms / 1000 + _JOIN_LAPSE_S)
        self.last = self.current
        return answer.assignment

    async def heartbeat(self) -> None:
        """Send a heartbeat; raises `KafkaError` with the coordinator's error."""
        await self.call(
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
        )

    async def leave(self) -> None:
        """Leave the group; a static member stays, to return with its instance id."""
        if self.generation == NO_GENERATION or self.instance_id is not None:
            return
        member = MemberIdentity(
            member_id=self.member_id,
            reason="the consumer is closing or too slow",
        )
        request = LeaveGroupRequest(group_id=self.group, members=[member])
        self.reset(keep_id=False)
        await self.call(request)
