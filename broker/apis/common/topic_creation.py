"""Creation of topics for CreateTopics, Metadata and FindCoordinator."""

from __future__ import annotations

from collections.abc import Mapping

from broker.apis.common.placement import place
from broker.cluster.cluster_topics import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    check_collision,
    check_name,
)
from broker.config import (
    DEFAULT_REPLICATION_FACTOR,
    NUM_PARTITIONS,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
)
from broker.coordination.coordinator_roles import NewTopic
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode, KafkaError
from broker.requests.request import Request


def check_new_name(name: str, broker: Broker) -> None:
    """Raise `KafkaError` unless a topic of this name can be created."""
    check_name(name)
    topics = broker.coordinator.admin.topics
    if name in topics:
        raise KafkaError(
            ErrorCode.topic_already_exists, f"topic {name!r} already exists"
        )
    if "." in name or "_" in name:
        check_collision(name, topics)


async def auto_create(request: Request, name: str, broker: Broker) -> KafkaError:
    """Begin to create a topic with the broker's defaults; raise `KafkaError`.

    Returns Kafka's error for a topic that is being created, after which clients retry.
    Topics of coordinators have no more replicas than there are brokers, and no larger
    ``min.insync.replicas``. Kafka refuses to create them with fewer brokers; a single
    broker without a configuration file would then have no groups.
    """
    config = broker.config
    live = broker.coordinator.membership.live_brokers()
    configs: Mapping[str, str] = {}
    partitions, replicas = config[NUM_PARTITIONS], config[DEFAULT_REPLICATION_FACTOR]
    if name == TRANSACTION_STATE_TOPIC:
        partitions = config[TRANSACTION_STATE_LOG_NUM_PARTITIONS]
        replicas = min(config[TRANSACTION_STATE_LOG_REPLICATION_FACTOR], len(live))
        min_insync = min(config[TRANSACTION_STATE_LOG_MIN_ISR], max(replicas, 1))
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min_insync),
            "segment.bytes": str(config[TRANSACTION_STATE_LOG_SEGMENT_BYTES]),
            "unclean.leader.election.enable": "false",
        }
    if name == GROUP_METADATA_TOPIC:
        partitions = config[OFFSETS_TOPIC_NUM_PARTITIONS]
        replicas = min(config[OFFSETS_TOPIC_REPLICATION_FACTOR], len(live))
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config[OFFSETS_TOPIC_SEGMENT_BYTES]),
        }
    check_new_name(name, broker)
    assignment = place(live, partitions, replicas, broker.rng)
    new = NewTopic(name=name, assignment=assignment, configs=configs)
    broker.client_quotas.count_auto_creation(request, len(assignment))
    return KafkaError(await broker.coordinator.admin.begin_topic(new))
