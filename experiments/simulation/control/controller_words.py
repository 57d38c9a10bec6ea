"""What a controller that is no broker says to brokers: its decisions as requests.

Brokers meet at a listener of their own, where clients are not told of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.cluster.topics import Topic
from broker.protocol.schemas.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.protocol.topic_partition import TopicPartition
from experiments.simulation.addresses import BROKERS, CLIENTS, port_of
from experiments.simulation.control.elections import LeaderAndIsr

HOST: Final = "controller"
ID: Final = 9999
PORT: Final = 9999
_PLAINTEXT: Final = 0

States = Mapping[TopicPartition, LeaderAndIsr]


@dataclass(frozen=True, slots=True)
class ControllerWords:
    """Makes requests to one broker, of one controller epoch and one broker epoch."""

    topics: Mapping[str, Topic]
    controller_epoch: int
    broker_epoch: int

    def leader_and_isr(self, states: States, *, is_new: bool) -> LeaderAndIsrRequest:
        """Return what the broker is to lead and to follow."""
        return LeaderAndIsrRequest(
            controller_id=ID,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            topic_states=tuple(
                LeaderAndIsrTopicState(
                    topic_name=name,
                    topic_id=self.topics[name].topic_id,
                    partition_states=tuple(
                        self._leader_and_isr(key.partition, states[key], is_new)
                        for key in keys
                    ),
                )
                for name, keys in _by_topic(states)
            ),
        )

    def _leader_and_isr(
        self, index: int, state: LeaderAndIsr, is_new: bool
    ) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=self.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            is_new=is_new,
        )

    def update_metadata(
        self, states: States, hosts: Mapping[int, str]
    ) -> UpdateMetadataRequest:
        """Return who leads these partitions, and where the brokers alive are."""
        brokers = [_broker(broker, host) for broker, host in sorted(hosts.items())]
        controller = UpdateMetadataBroker(
            id=ID, endpoints=(_endpoint(HOST, PORT, BROKERS),)
        )
        return UpdateMetadataRequest(
            controller_id=ID,
            controller_epoch=self.controller_epoch,
            broker_epoch=self.broker_epoch,
            live_brokers=(*brokers, controller),
            topic_states=tuple(
                UpdateMetadataTopicState(
                    topic_name=name,
                    topic_id=self.topics[name].topic_id,
                    partition_states=tuple(
                        self._metadata(key.partition, states[key]) for key in keys
                    ),
                )
                for name, keys in _by_topic(states)
            ),
        )

    def _metadata(
        self, index: int, state: LeaderAndIsr
    ) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=self.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            zk_version=state.partition_epoch,
            replicas=state.replicas,
        )


def _by_topic(
    keys: Iterable[TopicPartition],
) -> list[tuple[str, list[TopicPartition]]]:
    found: dict[str, list[TopicPartition]] = {}
    for key in keys:
        found.setdefault(key.topic, []).append(key)
    return list(found.items())


def _broker(broker: int, host: str) -> UpdateMetadataBroker:
    endpoints = tuple(
        _endpoint(host, port_of(broker, listener), listener)
        for listener in (CLIENTS, BROKERS)
    )
    return UpdateMetadataBroker(id=broker, endpoints=endpoints)


def _endpoint(host: str, port: int, listener: str) -> UpdateMetadataEndpoint:
    return UpdateMetadataEndpoint(
        port=port, host=host, listener=listener, security_protocol=_PLAINTEXT
    )
