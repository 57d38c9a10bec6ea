"""Creating topics, whoever asks: CreateTopics, Metadata, or the group coordinator.

Placement is round robin over the live brokers, Kafka's ``AdminUtils`` without racks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.cluster.topics import (
    GROUP_METADATA_TOPIC,
    check_collision,
    check_name,
)
from broker.config import (
    DEFAULT_REPLICATION_FACTOR,
    NUM_PARTITIONS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
)
from broker.coordination.coordinator import NewTopic
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode, KafkaError

# Kafka's bound on what one request may create (KIP-599's ``MAX_PARTITIONS_PER_BATCH``).
PARTITIONS_MAX: Final = 10_000

Assignment = tuple[tuple[int, ...], ...]


def place(
    brokers: Sequence[int], partitions: int, replicas: int, *, first: int = 0
) -> Assignment:
    """Return the replicas of ``partitions`` partitions, ``first`` being their number.

    Raises INVALID_REPLICATION_FACTOR where there are fewer brokers than replicas.

    >>> place([7, 8, 9], 2, 2)
    ((7, 8), (8, 9))
    """
    check_replication_factor(replicas)
    if replicas > len(brokers):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {replicas} with {len(brokers)} live brokers",
        )
    return tuple(
        tuple(brokers[(index + offset) % len(brokers)] for offset in range(replicas))
        for index in range(first, first + partitions)
    )


def check_replication_factor(replicas: int) -> None:
    """Raise INVALID_REPLICATION_FACTOR for one that no cluster could have."""
    if replicas < 1:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {replicas}, expected at least 1",
        )


def check_replicas(assignment: Assignment, brokers: Sequence[int]) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the replicas can be placed so."""
    for replicas in assignment:
        if not replicas or len(set(replicas)) < len(replicas):
            raise bad_assignment(f"replicas {replicas} are none, or one is named twice")
        unknown = set(replicas) - set(brokers)
        if unknown:
            raise bad_assignment(f"brokers {sorted(unknown)} are not alive")
        if len(replicas) != len(assignment[0]):
            raise bad_assignment("partitions have different replication factors")


def bad_assignment(message: str) -> KafkaError:
    """Return the error for an assignment that cannot be."""
    return KafkaError(ErrorCode.invalid_replica_assignment, message)


def check_new_name(name: str, broker: Broker) -> None:
    """Raise unless a topic called ``name`` can be created."""
    check_name(name)
    topics = broker.coordinator.topics
    if name in topics:
        raise KafkaError(
            ErrorCode.topic_already_exists, f"topic {name!r} already exists"
        )
    if "." in name or "_" in name:
        check_collision(name, topics)


async def auto_create(name: str, broker: Broker) -> None:
    """Create a topic with the broker's defaults; raise `KafkaError`.

    The offsets topic is given no more replicas than there are brokers: Kafka refuses,
    and so a single broker without a configuration file would have no groups.
    """
    config = broker.config
    live = broker.coordinator.live_brokers()
    configs: Mapping[str, str] = {}
    partitions, replicas = config[NUM_PARTITIONS], config[DEFAULT_REPLICATION_FACTOR]
    if name == GROUP_METADATA_TOPIC:
        partitions = config[OFFSETS_TOPIC_NUM_PARTITIONS]
        replicas = min(config[OFFSETS_TOPIC_REPLICATION_FACTOR], len(live))
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config[OFFSETS_TOPIC_SEGMENT_BYTES]),
        }
    check_new_name(name, broker)
    assignment = place(live, partitions, replicas)
    new = NewTopic(name=name, assignment=assignment, configs=configs)
    await broker.coordinator.create_topic(new)
