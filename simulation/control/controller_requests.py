"""Decisions of the scripted controller, as requests to brokers.

Brokers connect to each other at a separate listener, which clients do not see. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.cluster.cluster_topics import Topic
from broker.protocol.schemas.composing import (
    ControllerRequests,
    by_topic,
    metadata_of,
)
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from broker.protocol.topic_partition import TopicPartition
from simulation.addresses import BROKERS, CLIENTS, port_of
from simulation.control.elections import LeaderAndIsr

HOST: Final = "controller"
ID: Final = 9999
PORT: Final = 9999
_PLAINTEXT: Final = 0

States = Mapping[TopicPartition, LeaderAndIsr]


class RequestsToBroker:
    """Creates requests to one broker, for one controller epoch and one broker epoch."""

    def __init__(
        self, topics: Mapping[str, Topic], controller_epoch: int, broker_epoch: int
    ) -> None:
        self._controller_epoch = controller_epoch
        self._requests = ControllerRequests(
            controller_id=ID,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_ids={name: topic.topic_id for name, topic in topics.items()},
        )

    def leader_and_isr(self, states: States, *, is_new: bool) -> LeaderAndIsrRequest:
        """Return the request with the partitions that the broker leads or follows."""
        return self._requests.leader_and_isr(
            by_topic(
                {key: self._state(key, it, is_new=is_new) for key, it in states.items()}
            )
        )

    def update_metadata(
        self, states: States, hosts: Mapping[int, str]
    ) -> UpdateMetadataRequest:
        """Return the request with the partitions' leaders and the live brokers."""
        brokers = [_broker(broker, host) for broker, host in sorted(hosts.items())]
        controller = UpdateMetadataBroker(
            id=ID, endpoints=(_endpoint(HOST, PORT, BROKERS),)
        )
        return self._requests.update_metadata(
            by_topic(
                {key: metadata_of(self._state(key, it)) for key, it in states.items()}
            ),
            (*brokers, controller),
        )

    def _state(
        self, key: TopicPartition, decided: LeaderAndIsr, *, is_new: bool = False
    ) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            partition_index=key.partition,
            controller_epoch=self._controller_epoch,
            leader=decided.leader,
            leader_epoch=decided.leader_epoch,
            isr=decided.isr,
            partition_epoch=decided.partition_epoch,
            replicas=decided.replicas,
            is_new=is_new,
        )


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
