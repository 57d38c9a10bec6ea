"""The common interface of groups: an id, offsets, and conditions of their deletion.

Kafka: the interface ``Group``. A shard of ``__consumer_offsets`` holds groups of both
protocols in one namespace of ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from broker.groups.state.offset_store import OffsetStore
from broker.shards.effects import Record


class AnyGroup(ABC):
    """One group; ``kind`` is Kafka's name of its protocol."""

    __slots__ = ("group_id", "offsets")

    kind: ClassVar[str]
    protocol_type: str | None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets = OffsetStore()

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Kafka's name of the state."""

    @abstractmethod
    def is_stored(self) -> bool:
        """Return whether the log may hold a record of the group itself."""

    @abstractmethod
    def has_no_members(self) -> bool:
        """Return whether no member exists, joins or commits."""

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool:
        """Return whether members may use the topic."""

    @abstractmethod
    def require_deletable(self) -> None:
        """Raise `KafkaError` if the group cannot be deleted."""

    @abstractmethod
    def require_deletable_offsets(self) -> None:
        """Raise `KafkaError` if no offset of the group can be deleted (KIP-496)."""

    @abstractmethod
    def may_expire(self) -> bool:
        """Return whether offsets may expire in the group's state."""

    @abstractmethod
    def empty_since_ms(self) -> int | None:
        """Return the start of the offsets' retention; None: each commit's time."""

    @abstractmethod
    def tombstones(self) -> Iterable[Record]:
        """Return the records that delete the group, except its offsets."""

    @abstractmethod
    def check(self) -> None:
        """Assert the invariants."""

    def is_unused(self) -> bool:
        """Return whether the group has no members and no offsets."""
        return self.has_no_members() and not len(self.offsets)
