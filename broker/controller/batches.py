"""The requests of one step of the controller, collected by broker.

Kafka's ``ControllerBrokerRequestBatch``. A later state of a partition replaces an
earlier one; "is new" and "delete" are kept. A broker receives LeaderAndIsr, then
UpdateMetadata, then StopReplica: a leader is ready before clients learn of it, and
clients learn of the new leader before a replica stops. Each change of a leadership is
sent to all brokers as metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from broker.controller.assignment import ReplicaAssignment
from broker.controller.context import ControllerContext
from broker.controller.decisions import ControllerRequest, Decisions, Send, pausing
from broker.controller.leadership import Leadership
from broker.protocol.schemas.composing import (
    ControllerRequests,
    during_delete,
    live_leaders,
    metadata_of,
)
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrPartitionState
from broker.protocol.schemas.stop_replica_schema import StopReplicaPartitionState
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
)
from broker.protocol.topic_partition import TopicPartition

_S = TypeVar("_S")
_Requests: TypeAlias = Sequence[tuple[int, ControllerRequest]]


class RequestBatch:
    """The next requests.

    ``inter_broker_listener`` is the listener at which followers reach leaders.
    """

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
        """Send a partition's leader to ``brokers``, and its metadata to all brokers."""
        state = _state(key, leadership, assignment, is_new=is_new)
        for broker in brokers:
            states = self._leaders.setdefault(broker, {})
            before = states.get(key)
            already_new = before is not None and before.is_new
            states[key] = replace(state, is_new=True) if already_new else state
        self.send_metadata(self._context.brokers, [key])

    def stop(
        self, brokers: Iterable[int], key: TopicPartition, *, delete: bool
    ) -> None:
        """Send brokers the request to stop a replica, and with ``delete`` delete it."""
        for broker in brokers:
            states = self._stops.setdefault(broker, {})
            before = states.get(key)
            states[key] = StopReplicaPartitionState(
                partition_index=key.partition,
                leader_epoch=self._context.epoch_to_stop(key),
                delete_partition=delete
                or (before is not None and before.delete_partition),
            )

    def send_metadata(
        self, brokers: Iterable[int], keys: Iterable[TopicPartition]
    ) -> None:
        """Send brokers the live brokers and the metadata of partitions, if any."""
        self._metadata_for.update(brokers)
        for key in keys:
            leadership = self._context.leadership(key)
            if leadership is not None:
                self._metadata[key] = self._metadata_state(key, leadership)

    def send_all_metadata(
        self, brokers: Iterable[int], keys: Iterable[TopicPartition]
    ) -> Decisions[None]:
        """Send the metadata of many partitions, with pauses in between."""
        self.send_metadata(brokers, [])
        for count, key in enumerate(keys, 1):
            self.send_metadata((), [key])
            yield from pausing(count)

    def _metadata_state(
        self, key: TopicPartition, leadership: Leadership
    ) -> UpdateMetadataPartitionState:
        context = self._context
        state = _state(key, leadership, context.assignment(key))
        if key.topic in context.to_delete:
            state = during_delete(state)
        offline = [it for it in state.replicas if not context.is_online(it, key)]
        return metadata_of(state, tuple(offline))

    def flush(self) -> Decisions[None]:
        """Send the collected requests to registered brokers."""
        requests = [
            *(yield from self._leader_requests()),
            *(yield from self._metadata_requests()),
            *(yield from self._stop_requests()),
        ]
        self._leaders, self._metadata, self._stops = {}, {}, {}
        self._metadata_for = set()
        if requests:
            yield Send(tuple(requests))

    def _leader_requests(self) -> Decisions[_Requests]:
        live, requests = self._live_brokers(), []
        for broker in self._registered(self._leaders):
            collected = self._leaders[broker]
            states = yield from _in_order(collected)
            leaders = live_leaders(collected.values(), live, self._listener)
            request = self._to(broker).leader_and_isr(states, leaders)
            requests.append((broker, request))
        return requests

    def _metadata_requests(self) -> Decisions[_Requests]:
        brokers = self._registered(self._metadata_for)
        if not brokers:
            return []
        states = yield from _in_order(self._metadata)
        request = self._to(brokers[0]).update_metadata(states, self._live_brokers())
        epochs = {broker: self._context.brokers[broker].epoch for broker in brokers}
        return [(it, replace(request, broker_epoch=epochs[it])) for it in brokers]

    def _stop_requests(self) -> Decisions[_Requests]:
        requests = []
        for broker in self._registered(self._stops):
            states = yield from _in_order(self._stops[broker])
            requests.append((broker, self._to(broker).stop_replica(states)))
        return requests

    def _to(self, broker: int) -> ControllerRequests:
        context = self._context
        return ControllerRequests(
            controller_id=context.controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker].epoch,
            topic_ids=context.topic_ids,
        )

    def _live_brokers(self) -> list[UpdateMetadataBroker]:
        return [
            UpdateMetadataBroker(id=it.id, endpoints=it.endpoints, rack=it.rack)
            for _, it in sorted(self._context.brokers.items())
        ]

    def _registered(self, brokers: Iterable[int]) -> list[int]:
        return sorted(it for it in brokers if it in self._context.brokers)


def _state(
    key: TopicPartition,
    leadership: Leadership,
    assignment: ReplicaAssignment,
    *,
    is_new: bool = False,
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
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


def _in_order(
    states: Mapping[TopicPartition, _S],
) -> Decisions[dict[str, tuple[_S, ...]]]:
    """Return the states by topic, sorted by topic and partition."""
    topics: dict[str, dict[int, _S]] = {}
    for count, (key, state) in enumerate(states.items(), 1):
        topics.setdefault(key.topic, {})[key.partition] = state
        yield from pausing(count)
    ordered = {}
    for count, topic in enumerate(sorted(topics), 1):
        of_topic = topics[topic]
        ordered[topic] = tuple(map(of_topic.__getitem__, sorted(of_topic)))
        yield from pausing(count)
    return ordered
