"""A broker as seen by a controller: fenced by epochs, and naive otherwise.

The rules are those of Kafka's ``ReplicaManager``. The broker rejects a request of an
earlier controller, or for an earlier registration of the broker. A leadership takes
effect if its epoch is above the known epoch. No replica stops under an earlier epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from broker.protocol.topic_partition import TopicPartition

DURING_DELETE = -2


def partitions_of(request: Any) -> Iterator[tuple[TopicPartition, Any, Any]]:
    """Yield each partition of a request, with its topic's part and its own part."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), topic, state


class Broker:
    """Broker ``number``: its replicas, its logs, and its metadata for clients."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.epoch = -1
        self.controller_epoch = 0
        # Logs on disk: topic id by partition.
        self.logs: dict[TopicPartition, UUID | None] = {}
        self.bad_dirs: set[TopicPartition] = set()
        self.replicas: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self.alive: set[int] = set()

    def start(self, epoch: int) -> None:
        self.epoch = epoch
        self.bad_dirs.clear()
        self.replicas.clear()
        self.metadata.clear()
        self.alive.clear()

    def lose_directory(self, key: TopicPartition) -> None:
        """Make the directory of a partition fail until the next start."""
        self.bad_dirs.add(key)
        self.replicas.pop(key, None)

    def find_room(self, key: TopicPartition) -> None:
        """Free space for a partition that a full disk refused."""
        self.bad_dirs.discard(key)

    def obey(
        self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
    ) -> LeaderAndIsrResponse | StopReplicaResponse | None:
        fenced = (
            request.broker_epoch < self.epoch
            or request.controller_epoch < self.controller_epoch
        )
        if not fenced:
            self.controller_epoch = request.controller_epoch
        match request:
            case LeaderAndIsrRequest():
                return self._lead_or_follow(request, fenced)
            case StopReplicaRequest():
                return self._stop(request, fenced)
            case UpdateMetadataRequest():
                if not fenced:
                    self._update(request)
                return None

    def _lead_or_follow(
        self, request: LeaderAndIsrRequest, fenced: bool
    ) -> LeaderAndIsrResponse:
        if fenced:
            return LeaderAndIsrResponse(error_code=ErrorCode.stale_controller_epoch)
        errors = []
        for key, topic, state in partitions_of(request):
            errors.append(
                LeaderAndIsrPartitionError(
                    topic_name=None,
                    topic_id=topic.topic_id,
                    partition_index=key.partition,
                    error_code=self._become(key, topic.topic_id, state),
                )
            )
        return LeaderAndIsrResponse(
            error_code=ErrorCode.none, partition_errors=tuple(errors)
        )

    def _become(
        self,
        key: TopicPartition,
        topic_id: UUID | None,
        wanted: LeaderAndIsrPartitionState,
    ) -> ErrorCode:
        if key in self.bad_dirs:
            return ErrorCode.kafka_storage_error
        # A log of another topic id is set aside. It may belong to a reassigned replica:
        # the controller does not wait for the deletion of such a replica.
        mine = self.replicas.get(key) if self.logs.get(key) == topic_id else None
        if mine is not None and wanted.leader_epoch <= mine.leader_epoch:
            return ErrorCode.stale_controller_epoch
        if self.id not in wanted.replicas:
            return ErrorCode.unknown_topic_or_partition
        self.logs[key] = topic_id
        self.replicas[key] = wanted
        return ErrorCode.none

    def _stop(self, request: StopReplicaRequest, fenced: bool) -> StopReplicaResponse:
        if fenced:
            return StopReplicaResponse(error_code=ErrorCode.stale_controller_epoch)
        errors = []
        for key, _, state in partitions_of(request):
            errors.append(
                StopReplicaPartitionError(
                    topic_name=key.topic,
                    partition_index=key.partition,
                    error_code=self._stop_one(key, state),
                )
            )
        return StopReplicaResponse(
            error_code=ErrorCode.none, partition_errors=tuple(errors)
        )

    def _stop_one(
        self, key: TopicPartition, wanted: StopReplicaPartitionState
    ) -> ErrorCode:
        mine = self.replicas.get(key)
        if key in self.bad_dirs:
            return ErrorCode.kafka_storage_error
        if mine is not None and 0 <= wanted.leader_epoch < mine.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        self.replicas.pop(key, None)
        if wanted.delete_partition:
            self.logs.pop(key, None)
        return ErrorCode.none

    def _update(self, request: UpdateMetadataRequest) -> None:
        self.alive = {each.id for each in request.live_brokers}
        for key, _, state in partitions_of(request):
            if state.leader == DURING_DELETE:
                self.metadata.pop(key, None)
            else:
                self.metadata[key] = state
