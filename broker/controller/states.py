"""The states of partitions and of replicas, and the transitions between them.

Kafka's tables (``PartitionState``, ``ReplicaState``). A transition that is not in the
table is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PartitionState(Enum):
    """State by leader: NEW never had one, ONLINE has one, OFFLINE has lost it."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """The state of a replica between its creation and its deletion.

    Ineligible means that the broker or log directory is offline, or that the deletion
    failed; the deletion may succeed later.
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

# The states from which each state can be reached.
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
