"""A member of a consumer group as a value, and the state of its assignment.

Kafka: ``ConsumerGroupMember`` and ``MemberState``. Values are immutable: a step creates
a new value, which `ConsumerGroup.put` stores.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from broker.groups.state.group_messages import GroupProtocol

# Partitions of topics, each with the epoch of its assignment to the member.
Held: TypeAlias = Mapping[UUID, Mapping[int, int]]

NOTHING_HELD: Final[Held] = MappingProxyType({})


def _nothing() -> Held:
    return NOTHING_HELD


# Epochs in requests.
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
# A static member leaves temporarily: its partitions stay assigned.
STATIC_LEAVING_EPOCH: Final = -2


class MemberState(enum.Enum):
    """The progress of a member towards the target; the values are those of records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocols:
    """The protocols of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member. ``revoking`` are held partitions that the member has to revoke."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    assigned: Held = field(default_factory=_nothing)
    revoking: Held = field(default_factory=_nothing)
    classic: ClassicProtocols | None = None

    def is_reconciled(self, target_epoch: int) -> bool:
        """Return whether the member has reached the target of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def held_since(self, topic_id: UUID, partition: int) -> int | None:
        """Return the epoch of a held partition's assignment; None if not held."""
        for held in (self.assigned, self.revoking):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def subscription(self) -> tuple[object, ...]:
        """Return the fields of the member's metadata record."""
        return (
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topics,
            self.regex,
            self.assignor,
            self.classic,
        )

    def position(self) -> tuple[object, ...]:
        """Return the fields of the member's assignment record."""
        return (
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.revoking,
        )
