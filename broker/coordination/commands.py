"""The controller requests by which a cluster of one commands its broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from broker.cluster.topics import Topic
from broker.protocol.schemas.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from broker.protocol.schemas.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.protocol.sentinels import EPOCH_DURING_DELETE, LEADER_DURING_DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Makes requests of one controller to ``broker_id``, the sole replica of all."""

    broker_id: int
    controller_epoch: int
    broker_epoch: int

    def lead(
        self, topic: Topic, indexes: Iterable[int], *, is_new: bool
    ) -> LeaderAndIsrRequest:
        """Lead these partitions under the topic's leader epochs."""
        states = tuple(
            LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=self.controller_epoch,
                leader=self.broker_id,
                leader_epoch=topic.leader_epochs[index],
                isr=(self.broker_id,),
                partition_epoch=topic.leader_epochs[index],
                replicas=(self.broker_id,),
                is_new=is_new,
            )
            for index in indexes
        )
        return LeaderAndIsrRequest(
            controller_id=self.broker_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=(
                LeaderAndIsrTopicState(
                    topic_name=topic.name,
                    topic_id=topic.topic_id,
                    partition_states=states,
                ),
            ),
        )

    def announce(
        self, topic: Topic, indexes: Iterable[int], *, leader: int
    ) -> UpdateMetadataRequest:
        """Tell clients that ``leader`` leads these partitions."""
        states = tuple(
            UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=self.controller_epoch,
                leader=leader,
                leader_epoch=topic.leader_epochs[index],
                isr=(self.broker_id,),
                zk_version=topic.leader_epochs[index],
                replicas=(self.broker_id,),
                offline_replicas=() if leader == self.broker_id else (self.broker_id,),
            )
            for index in indexes
        )
        return self._tell(topic.name, topic.topic_id, states)

    def forget(
        self, name: str, topic_id: UUID | None, partitions: int
    ) -> UpdateMetadataRequest:
        """Tell clients that a topic is being deleted."""
        states = tuple(
            UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=self.controller_epoch,
                leader=LEADER_DURING_DELETE,
                leader_epoch=EPOCH_DURING_DELETE,
                isr=(self.broker_id,),
                zk_version=EPOCH_DURING_DELETE,
                replicas=(self.broker_id,),
                offline_replicas=(self.broker_id,),
            )
            for index in range(partitions)
        )
        return self._tell(name, topic_id, states)

    def _tell(
        self,
        name: str,
        topic_id: UUID | None,
        states: tuple[UpdateMetadataPartitionState, ...],
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self.broker_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=(
                UpdateMetadataTopicState(
                    topic_name=name,
                    topic_id=topic_id,
                    partition_states=states,
                ),
            ),
            live_brokers=(),
        )

    def delete(self, topic: str, index: int) -> StopReplicaRequest:
        """Delete one replica, whatever its epoch."""
        state = StopReplicaPartitionState(
            partition_index=index,
            leader_epoch=EPOCH_DURING_DELETE,
            delete_partition=True,
        )
        return StopReplicaRequest(
            controller_id=self.broker_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=(
                StopReplicaTopicState(topic_name=topic, partition_states=(state,)),
            ),
        )
