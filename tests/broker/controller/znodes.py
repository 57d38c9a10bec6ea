"""ZooKeeper's contents for a cluster, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.controller.context import RegisteredBroker
from broker.controller.controller import ZooKeeperState
from broker.controller.leadership import Leadership
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataEndpoint
from broker.protocol.topic_partition import TopicPartition


@dataclass
class Znodes:
    """Brokers, topics, partition states, and requests of operators."""

    brokers: dict[int, RegisteredBroker] = field(default_factory=dict)
    topics: dict[str, TopicAssignment] = field(default_factory=dict)
    states: dict[TopicPartition, Leadership] = field(default_factory=dict)
    deletions: set[str] = field(default_factory=set)
    reassignments: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    preferred: set[TopicPartition] | None = None

    def snapshot(self) -> ZooKeeperState:
        return ZooKeeperState(
            brokers=dict(self.brokers),
            topics=dict(self.topics),
            leaderships=dict(self.states),
            deletions=set(self.deletions),
            reassignments=dict(self.reassignments),
            preferred_election=self.preferred,
        )

    def add(self, topic: str, partitions: Mapping[int, ReplicaAssignment]) -> None:
        """Write new or changed partitions of a topic; the other partitions stay."""
        there = self.topics[topic]
        partitions = {**there.partitions, **partitions}
        self.topics[topic] = replace(there, partitions=partitions)

    def replicas(self, key: TopicPartition) -> ReplicaAssignment:
        return self.topics[key.topic].partitions[key.partition]


def registration(number: int, epoch: int) -> RegisteredBroker:
    """Return a broker's registration."""
    return RegisteredBroker(
        id=number,
        epoch=epoch,
        endpoints=(
            UpdateMetadataEndpoint(
                port=9092, host=f"b{number}", listener="PLAINTEXT", security_protocol=0
            ),
        ),
    )
