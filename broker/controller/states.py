"""The states of partitions and of replicas, and which may follow which.

Kafka's tables (``PartitionState``, ``ReplicaState``). A change that a table does not
allow leaves the partition, or the replica, as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PartitionState(Enum):
    """New has never had a leader; online has one; offline has lost it."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """The state of a replica between its creation and its deletion.

    Ineligible means that its broker, or its disk, did not delete it: it may later.
    """

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_LIVING_PARTITION: Final = frozenset(
    {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
)
_LIVING_REPLICA: Final = frozenset(
    {
        ReplicaState.NEW,
        ReplicaState.ONLINE,
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_INELIGIBLE,
    }
)

# The states that each state may be reached from.
PARTITION_BEFORE: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: _LIVING_PARTITION,
    PartitionState.OFFLINE: _LIVING_PARTITION,
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}
REPLICA_BEFORE: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: _LIVING_REPLICA,
    ReplicaState.OFFLINE: _LIVING_REPLICA,
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}
