"""Construction of the controller's requests from the states of partitions.

Used by the controller, by the coordinator of a single broker, and by the scripted
controllers of experiments. States are passed by topic (`by_topic`), and have the same
order in the requests. The time to build a request depends on its topics only, so
callers with many partitions collect their states in steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.protocol.sentinels import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from broker.protocol.topic_partition import TopicPartition

_S = TypeVar("_S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequests:
    """Builder of the requests of one controller to one registration of a broker.

    ``broker_epoch`` is -1 if brokers do not register. A topic missing in ``topic_ids``
    is identified by its name only.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int = -1
    topic_ids: Mapping[str, UUID | None]

    def leader_and_isr(
        self,
        states: Mapping[str, Sequence[LeaderAndIsrPartitionState]],
        live_leaders: Iterable[LeaderAndIsrLiveLeader] = (),
        *,
        kind: int = 0,
    ) -> LeaderAndIsrRequest:
        """Return the request to lead and follow partitions; ``kind`` is its type."""
        return LeaderAndIsrRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            type=kind,
            topic_states=tuple(
                LeaderAndIsrTopicState(
                    topic_name=topic,
                    topic_id=self.topic_ids.get(topic),
                    partition_states=tuple(of_topic),
                )
                for topic, of_topic in states.items()
            ),
            live_leaders=tuple(live_leaders),
        )

    def update_metadata(
        self,
        states: Mapping[str, Sequence[UpdateMetadataPartitionState]],
        live_brokers: Iterable[UpdateMetadataBroker] = (),
    ) -> UpdateMetadataRequest:
        """Return the request with these partitions and live brokers."""
        return UpdateMetadataRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=tuple(
                UpdateMetadataTopicState(
                    topic_name=topic,
                    topic_id=self.topic_ids.get(topic),
                    partition_states=tuple(of_topic),
                )
                for topic, of_topic in states.items()
            ),
            live_brokers=tuple(live_brokers),
        )

    def stop_replica(
        self, states: Mapping[str, Sequence[StopReplicaPartitionState]]
    ) -> StopReplicaRequest:
        """Return the request to stop, and possibly delete, replicas."""
        return StopReplicaRequest(
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=tuple(
                StopReplicaTopicState(
                    topic_name=topic, partition_states=tuple(of_topic)
                )
                for topic, of_topic in states.items()
            ),
        )


def metadata_of(
    state: LeaderAndIsrPartitionState, offline_replicas: tuple[int, ...] = ()
) -> UpdateMetadataPartitionState:
    """Return the metadata for clients of a partition in this state."""
    return UpdateMetadataPartitionState(
        partition_index=state.partition_index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        zk_version=state.partition_epoch,
        replicas=state.replicas,
        offline_replicas=offline_replicas,
    )


def during_delete(state: LeaderAndIsrPartitionState) -> LeaderAndIsrPartitionState:
    """Return the state of a partition whose topic is being deleted."""
    return replace(
        state,
        leader=LEADER_DURING_DELETE,
        leader_epoch=EPOCH_DURING_DELETE,
        partition_epoch=EPOCH_DURING_DELETE,
    )


def live_leaders(
    states: Iterable[LeaderAndIsrPartitionState],
    brokers: Iterable[UpdateMetadataBroker],
    listener: str,
) -> Iterator[LeaderAndIsrLiveLeader]:
    """Yield the addresses of the leaders among these brokers, in their order."""
    leaders = {state.leader for state in states}
    for broker in brokers:
        for endpoint in broker.endpoints:
            if broker.id in leaders and endpoint.listener == listener:
                yield LeaderAndIsrLiveLeader(
                    broker_id=broker.id, host_name=endpoint.host, port=endpoint.port
                )


def by_topic(states: Mapping[TopicPartition, _S]) -> dict[str, list[_S]]:
    """Return the states of each topic, in the order given."""
    topics: dict[str, list[_S]] = {}
    for key, state in states.items():
        topics.setdefault(key.topic, []).append(state)
    return topics
