"""A member's side of the group protocol: requests to the coordinator, and its identity.

Kafka's ``AbstractCoordinator``: finding the coordinator, joining (KIP-394's two steps),
syncing, heartbeats, leaving, static membership (KIP-345). `ConsumerCoordinator` decides
when to do these things, and interprets the assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.client.config import ClientConfig
from broker.client.consumer.consumer_config import (
    GROUP_ID,
    GROUP_INSTANCE_ID,
    MAX_POLL_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
)
from broker.client.failures import COORDINATOR_MOVED, check
from broker.client.metadata import Metadata
from broker.client.network_client import Address, NetworkClient
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from broker.protocol.messages.heartbeat import HeartbeatRequest
from broker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from broker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.protocol.messages.message import AnyRequest, AnyResponse
from broker.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

_PROTOCOL_TYPE: Final = "consumer"
_GROUP_KEY: Final = 0
# A join is answered when the last member has joined, or the time for that is over.
_JOIN_LAPSE_S: Final = 5.0
NO_GENERATION: Final = -1
# The coordinator does not know us any more, under this id or in this generation.
FORGOTTEN: Final = frozenset(
    {ErrorCode.unknown_member_id, ErrorCode.illegal_generation}
)


class Subscribed(NamedTuple):
    """A member as its leader receives it; the subscription is encoded."""

    member_id: str
    instance_id: str | None
    subscription: bytes


class Joined(NamedTuple):
    """The answer to a join; only the group's leader receives ``members``."""

    protocol: str
    leads: bool
    skips_assignment: bool
    members: tuple[Subscribed, ...]


class Generation(NamedTuple):
    """A member's identity in one generation of its group (Kafka: ``Generation``)."""

    number: int
    member_id: str


class _Failing(AnyResponse, Protocol):
    """A response with an error of its own."""

    @property
    def error_code(self) -> ErrorCode:
        """The error."""


_R = TypeVar("_R", bound=AnyResponse)
_E = TypeVar("_E", bound=_Failing)


class GroupMember:
    """One member of one group."""

    def __init__(
        self, config: ClientConfig, client: NetworkClient, metadata: Metadata
    ) -> None:
        group = config[GROUP_ID]
        assert group is not None
        self.group = group
        self.instance_id = config[GROUP_INSTANCE_ID]
        self.member_id = ""
        self.generation = NO_GENERATION
        self._protocol: str | None = None
        self._client = client
        self._metadata = metadata
        self._session_ms = config[SESSION_TIMEOUT_MS]
        self._rebalance_ms = config[MAX_POLL_INTERVAL_MS]
        self._coordinator: Address | None = None

    @property
    def current(self) -> Generation:
        """The member's present identity."""
        return Generation(self.generation, self.member_id)

    async def call(self, request: AnyRequest[_E], timeout_s: float = 0.0) -> _E:
        """Do as `ask`, and raise the response's error, too."""
        answer = await self.ask(request, timeout_s)
        self.mind(answer.error_code)
        check(answer.error_code, request.api_key.name)
        return answer

    async def ask(self, request: AnyRequest[_R], timeout_s: float = 0.0) -> _R:
        """Ask the coordinator, which is found first if need be; raises `KafkaError`."""
        coordinator = self._coordinator or await self._find()
        try:
            return await self._client.call(coordinator, request, timeout_s)
        except KafkaError as error:
            self.mind(error.code)
            raise

    def mind(self, code: ErrorCode) -> None:
        """Look for the coordinator again if an error says that it has moved."""
        if code in COORDINATOR_MOVED:
            self._coordinator = None

    async def _find(self) -> Address:
        request = FindCoordinatorRequest(key=self.group, key_type=_GROUP_KEY)
        address = self._metadata.any_address()
        found = await self._client.call(address, request)
        check(found.error_code, found.error_message)
        self._coordinator = Address(found.host, found.port, "group")
        return self._coordinator

    # ---- membership -----------------------------------------------------------------

    async def join(self, protocols: Mapping[str, bytes]) -> Joined:
        """Join with subscriptions by strategy, and wait for the others."""
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
        coordinator = self._coordinator or await self._find()
        try:
            joined = await self._client.call(coordinator, request, timeout_s)
            if joined.error_code is ErrorCode.member_id_required:
                self.member_id = joined.member_id
            check(joined.error_code, f"cannot join {self.group}")
        except KafkaError as error:
            self.mind(error.code)
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
        """Hand in the assignments, if we lead, and return our own."""
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
        """Leave the group; a static member stays, to come back under its name."""
        if self.generation == NO_GENERATION or self.instance_id is not None:
            return
        member = MemberIdentity(
            member_id=self.member_id,
            reason="the consumer is closing or too slow",
        )
        request = LeaveGroupRequest(group_id=self.group, members=[member])
        self.forget(keep_id=False)
        await self.call(request)

    def forget(self, *, keep_id: bool) -> None:
        """Be a member no more, or not in this generation."""
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = ""
