"""Replica assignments of partitions, also during a reassignment (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from broker.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of a partition, including replicas being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return _without(self.replicas, self.removing)

    @property
    def is_being_reassigned(self) -> bool:
        """Return whether replicas are being added or removed."""
        return bool(self.adding or self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """Return the assignment during a reassignment from its origin to ``target``."""
        origin = self.origin
        return ReplicaAssignment(
            replicas=target + _without(origin, target),
            adding=_without(target, origin),
            removing=_without(origin, target),
        )

    def without(self, broker: int) -> ReplicaAssignment:
        """Return the assignment without one replica."""
        return ReplicaAssignment(
            _without(self.replicas, (broker,)),
            _without(self.adding, (broker,)),
            _without(self.removing, (broker,)),
        )


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The content of a topic's znode; topics created before Kafka 2.8 have no ID."""

    topic_id: UUID | None
    partitions: Mapping[int, ReplicaAssignment]


class PartitionAndReplica(NamedTuple):
    """One replica of one partition."""

    key: TopicPartition
    broker: int


def _without(these: tuple[int, ...], those: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(each for each in these if each not in those)
