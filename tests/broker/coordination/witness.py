"""A broker that obeys its coordinator and records each request."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from broker.coordination.coordinator_roles import FoundLog
from broker.log.steps import Steps
from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.topic_partition import TopicPartition
from planes.lock import TaskLock

LEADER_DURING_DELETE = -2


class Witness:
    """A broker that obeys each request and records it."""

    def __init__(self) -> None:
        self.controller_epoch = 0
        self.state_change_lock = TaskLock("witness")
        self.held: dict[TopicPartition, UUID | None] = {}
        self.led: dict[TopicPartition, int] = {}
        self.told: dict[TopicPartition, int] = {}
        self.words: list[str] = []
        self.refuses: set[TopicPartition] = set()

    def said(self, *verbs: str) -> list[str]:
        """Return the recorded words that begin with one of the verbs."""
        return [each for each in self.words if each.startswith(verbs)]

    def holds(self, key: TopicPartition, topic_id: UUID | None) -> bool:
        return key in self.held and topic_id in (None, self.held[key])

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest
    ) -> LeaderAndIsrResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                refused = key in self.refuses
                if not refused:
                    self.held[key] = topic.topic_id
                    self.led[key] = state.leader_epoch
                    self.words.append(f"lead {key[0]}-{key[1]}")
                errors.append(
                    LeaderAndIsrPartitionError(
                        topic_name=key[0],
                        topic_id=topic.topic_id,
                        partition_index=key[1],
                        error_code=ErrorCode.kafka_storage_error
                        if refused
                        else ErrorCode.none,
                    )
                )
        return LeaderAndIsrResponse(
            error_code=ErrorCode.none, partition_errors=tuple(errors)
        )

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                if state.delete_partition:
                    # The request may repeat another whose answer or sender was lost.
                    self.held.pop(key, None)
                    self.led.pop(key, None)
                verb = "delete" if state.delete_partition else "stop"
                self.words.append(f"{verb} {key[0]}-{key[1]}")
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=key[0],
                        partition_index=key[1],
                        error_code=ErrorCode.none,
                    )
                )
        return StopReplicaResponse(
            error_code=ErrorCode.none, partition_errors=tuple(errors)
        )

    def updating_metadata(self, request: UpdateMetadataRequest) -> Steps[ErrorCode]:
        yield None
        return self.update_metadata(request)

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                if state.leader == LEADER_DURING_DELETE:
                    self.told.pop(key, None)
                    self.words.append(f"forget {key[0]}-{key[1]}")
                else:
                    self.told[key] = state.leader
                    self.words.append(f"tell {key[0]}-{key[1]}")
        return ErrorCode.none

    async def topic_changed(self, name: str) -> None:
        self.words.append(f"configure {name}")

    async def broker_configs_changed(self) -> None:
        self.words.append("configure the broker")

    def quotas_changed(self, entities: Collection[str] | None) -> None:
        named = ["all"] if entities is None else entities
        self.words.extend(f"quotas of {each}" for each in named)

    def led_with_others(self) -> list[TopicPartition]:
        return []

    async def checkpoint_deletions(self) -> None:
        pass

    async def settle_deletions(self) -> None:
        self.words.append("settle")

    def settle_deletions_now(self) -> None:
        self.words.append("settle now")

    def found(self) -> dict[TopicPartition, FoundLog]:
        """Return the logs on this broker's disk."""
        return {
            key: FoundLog(
                topic_id=topic_id,
                is_empty=False,
                latest_epoch=self.led.get(key, 0),
                latest_producer_id=-1,
            )
            for key, topic_id in self.held.items()
        }
