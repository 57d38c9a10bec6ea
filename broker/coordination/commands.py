"""The controller requests by which a single-broker cluster commands its broker.

A request about many partitions is built in steps of `STEP_ITEMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from broker.cluster.cluster_topics import Topic
from broker.coordination.cluster_state import Deletion
from broker.coordination.coordinator_roles import CoordinatedBroker
from broker.log.steps import Steps, run
from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.composing import (
    ControllerRequests,
    during_delete,
    metadata_of,
)
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionState,
    StopReplicaRequest,
)
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.sentinels import EPOCH_DURING_DELETE
from broker.protocol.topic_partition import TopicPartition
from planes.slices import STEP_ITEMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Builder of a controller's requests to ``broker_id``, the sole replica of all."""

    broker_id: int
    controller_epoch: int
    broker_epoch: int

    def lead(
        self, topic: Topic, indexes: Iterable[int], *, is_new: bool
    ) -> LeaderAndIsrRequest:
        """Return the request to lead these partitions under the topic's epochs."""
        states = [
            self._state(
                index, self.broker_id, topic.leader_epochs[index], is_new=is_new
            )
            for index in indexes
        ]
        requests = self._requests(topic.name, topic.topic_id)
        return requests.leader_and_isr({topic.name: states})

    def announcing(
        self, topic: Topic, indexes: Iterable[int], *, leader: int
    ) -> Steps[UpdateMetadataRequest]:
        """Return the request that announces these partitions' leader to clients."""
        offline = () if leader == self.broker_id else (self.broker_id,)
        states = []
        for count, index in enumerate(indexes, 1):
            state = self._state(index, leader, topic.leader_epochs[index])
            states.append(metadata_of(state, offline))
            if not count % STEP_ITEMS:
                yield None
        requests = self._requests(topic.name, topic.topic_id)
        return requests.update_metadata({topic.name: states})

    def announcing_deletion(
        self, name: str, topic_id: UUID | None, partitions: int
    ) -> Steps[UpdateMetadataRequest]:
        """Return the request that announces a topic's deletion to clients."""
        states = []
        for index in range(partitions):
            state = during_delete(self._state(index, self.broker_id, 0))
            states.append(metadata_of(state, (self.broker_id,)))
            if not len(states) % STEP_ITEMS:
                yield None
        return self._requests(name, topic_id).update_metadata({name: states})

    def delete(self, topic: str, index: int) -> StopReplicaRequest:
        """Return the request to delete one replica, whatever its epoch."""
        state = StopReplicaPartitionState(
            partition_index=index,
            leader_epoch=EPOCH_DURING_DELETE,
            delete_partition=True,
        )
        return self._requests(topic, None).stop_replica({topic: [state]})

    def _requests(self, topic: str, topic_id: UUID | None) -> ControllerRequests:
        return ControllerRequests(
            controller_id=self.broker_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_ids={topic: topic_id},
        )

    def _state(
        self, index: int, leader: int, epoch: int, *, is_new: bool = False
    ) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=self.controller_epoch,
            leader=leader,
            leader_epoch=epoch,
            isr=(self.broker_id,),
            partition_epoch=epoch,
            replicas=(self.broker_id,),
            is_new=is_new,
        )


class SoleReplicas:
    """Commands of a single-broker cluster. `Membership.open` sets ``broker``."""

    broker: CoordinatedBroker

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self.broker_id = broker_id
        self._broker_epoch = broker_epoch

    @property
    def _commands(self) -> Commands:
        return Commands(
            broker_id=self.broker_id,
            controller_epoch=self.broker.controller_epoch,
            broker_epoch=self._broker_epoch(),
        )

    def lead(self, topic: Topic, index: int, *, is_new: bool) -> ErrorCode:
        """Lead one partition; return the broker's error code."""
        answer = self.broker.become_leader_or_follower(
            self._commands.lead(topic, [index], is_new=is_new)
        )
        (outcome,) = answer.partition_errors
        return outcome.error_code

    def delete_all(self, name: str, deletion: Deletion) -> bool:
        """Finish an interrupted deletion; False if a disk fails."""
        run(self.announce_deletion(name, deletion))
        return all(
            self.delete(name, index, deletion.topic_id)
            for index in range(deletion.partitions)
        )

    def delete(self, topic: str, index: int, topic_id: UUID | None) -> bool:
        """Delete one replica of the topic with this id; False if its disk fails."""
        if not self.broker.holds(TopicPartition(topic, index), topic_id):
            return True
        answer = self.broker.stop_replicas(self._commands.delete(topic, index))
        (outcome,) = answer.partition_errors
        return outcome.error_code is ErrorCode.none

    def announce(self, topic: Topic, indexes: Iterable[int], leader: int) -> None:
        """Announce leaders to clients in one step, for callers that cannot wait."""
        making = self._commands.announcing(topic, indexes, leader=leader)
        self.broker.update_metadata(run(making))

    def announce_in_steps(
        self, topic: Topic, indexes: Iterable[int], leader: int
    ) -> Steps[None]:
        """Announce leaders to clients in steps; the caller holds the lock."""
        making = self._commands.announcing(topic, indexes, leader=leader)
        yield from self.broker.updating_metadata((yield from making))

    def announce_deletion(self, name: str, deletion: Deletion) -> Steps[None]:
        """Announce the deletion of a topic to clients in steps."""
        making = self._commands.announcing_deletion(
            name, deletion.topic_id, deletion.partitions
        )
        yield from self.broker.updating_metadata((yield from making))
