"""The requests of one step of the controller, collected by broker.

Kafka's ``ControllerBrokerRequestBatch``. What is said twice of a partition is sent
once, as it was said last; "is new" and "delete" stay once they were said. A broker is
sent LeaderAndIsr, then UpdateMetadata, then StopReplica: it must lead before clients
come, and clients must go elsewhere before a replica is gone. Every change of a
leadership goes to the metadata of all brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from broker.controller.assignment import ReplicaAssignment
from broker.controller.context import ControllerContext
from broker.controller.decisions import ControllerRequest, Decisions, Send
from broker.controller.leadership import Leadership
from broker.protocol.schemas.leader_and_isr import (
    LeaderAndIsrLiveLeader,
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
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.protocol.sentinels import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from broker.protocol.topic_partition import TopicPartition

_S = TypeVar("_S")


class RequestBatch:
    """What is to be sent next; ``inter_broker_listener`` is where leaders are found."""

    def __init__(self, context: ControllerContext, inter_broker_listener: str) -> None:
        self._context = context
        self._listener = inter_broker_listener
        self._leaders: dict[int, dict[TopicPartition, LeaderAndIsrPartitionState]] = {}
        self._metadata_for: set[int] = set()
        self._metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self._stops: dict[int, dict[TopicPartition, StopReplicaPartitionState]] = {}

    def lead_or_follow(
        self,
        brokers: Iterable[int],
        key: TopicPartition,
        leadership: Leadership,
        assignment: ReplicaAssignment,
        *,
        is_new: bool = False,
    ) -> None:
        """Tell brokers who leads a partition, and all brokers' clients."""
        state = LeaderAndIsrPartitionState(
            partition_index=key.partition,
            controller_epoch=leadership.controller_epoch,
            leader=leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=leadership.isr,
            partition_epoch=leadership.version,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            is_new=is_new,
            leader_recovery_state=leadership.recovery_state,
        )
        for broker in brokers:
            states = self._leaders.setdefault(broker, {})
            before = states.get(key)
            already_new = before is not None and before.is_new
            states[key] = replace(state, is_new=True) if already_new else state
        self.tell(self._context.brokers, [key])

    def stop(
        self, brokers: Iterable[int], key: TopicPartition, *, delete: bool
    ) -> None:
        """Have brokers stop a replica, and perhaps delete it."""
        for broker in brokers:
            states = self._stops.setdefault(broker, {})
            before = states.get(key)
            states[key] = StopReplicaPartitionState(
                partition_index=key.partition,
                leader_epoch=self._context.epoch_to_stop(key),
                delete_partition=delete
                or (before is not None and before.delete_partition),
            )

    def tell(self, brokers: Iterable[int], keys: Iterable[TopicPartition]) -> None:
        """Tell brokers' clients of partitions, and in any case who is alive."""
        self._metadata_for.update(brokers)
        for key in keys:
            leadership = self._context.leadership(key)
            if leadership is not None:
                self._metadata[key] = self._metadata_state(key, leadership)

    def _metadata_state(
        self, key: TopicPartition, leadership: Leadership
    ) -> UpdateMetadataPartitionState:
        deleted = key.topic in self._context.to_delete
        replicas = self._context.replicas(key)
        return UpdateMetadataPartitionState(
            partition_index=key.partition,
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETE if deleted else leadership.leader,
            leader_epoch=EPOCH_DURING_DELETE if deleted else leadership.leader_epoch,
            isr=leadership.isr,
            zk_version=EPOCH_DURING_DELETE if deleted else leadership.version,
            replicas=replicas,
            offline_replicas=tuple(
                it for it in replicas if not self._context.is_online(it, key)
            ),
        )

    def flush(self) -> Decisions[None]:
        """Send what has been collected, to brokers that are registered."""
        requests: list[tuple[int, ControllerRequest]] = [
            *self._leader_requests(),
            *self._metadata_requests(),
            *self._stop_requests(),
        ]
        self._leaders, self._metadata, self._stops = {}, {}, {}
        self._metadata_for = set()
        if requests:
            yield Send(tuple(requests))

    def _leader_requests(self) -> Iterator[tuple[int, LeaderAndIsrRequest]]:
        context = self._context
        for broker in self._registered(self._leaders):
            states = self._leaders[broker]
            leaders = {state.leader for state in states.values()}
            yield (
                broker,
                LeaderAndIsrRequest(
                    controller_id=context.controller_id,
                    controller_epoch=context.epoch,
                    broker_epoch=context.brokers[broker].epoch,
                    topic_states=tuple(
                        LeaderAndIsrTopicState(
                            topic_name=topic,
                            topic_id=context.topic_ids.get(topic),
                            partition_states=of_topic,
                        )
                        for topic, of_topic in _by_topic(states)
                    ),
                    live_leaders=tuple(self._live_leaders(leaders)),
                ),
            )

    def _live_leaders(self, leaders: set[int]) -> Iterator[LeaderAndIsrLiveLeader]:
        for leader in self._registered(leaders):
            for endpoint in self._context.brokers[leader].endpoints:
                if endpoint.listener == self._listener:
                    yield LeaderAndIsrLiveLeader(
                        broker_id=leader, host_name=endpoint.host, port=endpoint.port
                    )

    def _metadata_requests(self) -> Iterator[tuple[int, UpdateMetadataRequest]]:
        context = self._context
        topic_states = tuple(
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=context.topic_ids.get(topic),
                partition_states=of_topic,
            )
            for topic, of_topic in _by_topic(self._metadata)
        )
        live_brokers = tuple(
            UpdateMetadataBroker(id=it.id, endpoints=it.endpoints, rack=it.rack)
            for it in sorted(context.brokers.values(), key=lambda it: it.id)
        )
        for broker in self._registered(self._metadata_for):
            yield (
                broker,
                UpdateMetadataRequest(
                    controller_id=context.controller_id,
                    controller_epoch=context.epoch,
                    broker_epoch=context.brokers[broker].epoch,
                    topic_states=topic_states,
                    live_brokers=live_brokers,
                ),
            )

    def _stop_requests(self) -> Iterator[tuple[int, StopReplicaRequest]]:
        context = self._context
        for broker in self._registered(self._stops):
            yield (
                broker,
                StopReplicaRequest(
                    controller_id=context.controller_id,
                    controller_epoch=context.epoch,
                    broker_epoch=context.brokers[broker].epoch,
                    topic_states=tuple(
                        StopReplicaTopicState(
                            topic_name=topic, partition_states=of_topic
                        )
                        for topic, of_topic in _by_topic(self._stops[broker])
                    ),
                ),
            )

    def _registered(self, brokers: Iterable[int]) -> list[int]:
        return sorted(it for it in brokers if it in self._context.brokers)


def _by_topic(
    states: Mapping[TopicPartition, _S],
) -> Iterator[tuple[str, tuple[_S, ...]]]:
    topics: dict[str, list[_S]] = {}
    for key in sorted(states):
        topics.setdefault(key.topic, []).append(states[key])
    for topic, of_topic in topics.items():
        yield topic, tuple(of_topic)
