"""Arguments and results of the core; no wire entities.

The field names are those of Kafka's JoinGroup, SyncGroup and LeaveGroup schemas. A
member that does not know its id yet sends ``UNKNOWN_MEMBER_ID``, the empty string.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from broker.protocol.errors import ErrorCode

T = TypeVar("T")

UNKNOWN_MEMBER_ID: Final = ""
UNKNOWN_GENERATION: Final = -1
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class GroupProtocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request, with the connection's data about its sender."""

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    instance_id: str | None = None
    # KIP-394: a dynamic member first receives an id, then joins with it (from v4 on).
    requires_known_member_id: bool = True
    # KIP-814: a returning static leader skips the assignment (from v9 on).
    supports_skipping_assignment: bool = True


class JoinedMember(NamedTuple):
    """A member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to JoinGroup; after an error all other fields have their defaults."""

    member_id: str
    error: ErrorCode = ErrorCode.none
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request; only the leader sends ``assignments``."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    # None before v5: not checked.
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to SyncGroup: this member's assignment, opaque to the broker."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberIdentity(NamedTuple):
    """The leaving member: by member id, or by an operator's static instance id."""

    member_id: str
    instance_id: str | None = None


class LeftMember(NamedTuple):
    """The outcome of one leave."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


class OffsetCommit(NamedTuple):
    """An offset that a consumer has reached."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    # -1: after offsets.retention.minutes. OffsetCommit v2 to v4 may set a time.
    expire_ms: int = -1
