"""Paths of a Kafka cluster in ZooKeeper: Kafka 3.9's ``ZkData``.

Paths are within the chroot of ``zookeeper.connect``.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.topic_partition import TopicPartition

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CONFIG_CHANGES: Final = "/config/changes"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
USER_CONFIGS: Final = "/config/users"
CLIENT_CONFIGS: Final = "/config/clients"
IP_CONFIGS: Final = "/config/ips"
TOPICS_TO_DELETE: Final = "/admin/delete_topics"
REASSIGNMENT: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
PRODUCER_IDS: Final = "/latest_producer_id_block"

# Znodes that a broker creates first, parents before children (``PersistentZkPaths``).
PERSISTENT: Final = (
    *("/brokers", BROKER_IDS, TOPICS, BROKER_SEQUENCE),
    *("/config", CONFIG_CHANGES, TOPIC_CONFIGS, BROKER_CONFIGS),
    *(CLIENT_CONFIGS, USER_CONFIGS, IP_CONFIGS),
    *("/admin", TOPICS_TO_DELETE),
    *("/cluster", "/consumers", ISR_CHANGES, LOG_DIR_EVENTS, PRODUCER_IDS),
)
# Sequential znodes: ten digits follow.
CONFIG_CHANGE: Final = f"{CONFIG_CHANGES}/config_change_"
LOG_DIR_EVENT: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"


def broker(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic's id and assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Return the parent of a topic's partitions, which exist once they have leaders."""
    return f"{TOPICS}/{name}/partitions"


def partition(key: TopicPartition) -> str:
    """Return the parent of a partition's state."""
    return f"{TOPICS}/{key.topic}/partitions/{key.partition}"


def partition_state(key: TopicPartition) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{partition(key)}/state"


def topic_config(name: str) -> str:
    """Return the path of a topic's configs."""
    return f"{TOPIC_CONFIGS}/{name}"


def topic_to_delete(name: str) -> str:
    """Return the path of the request to delete a topic."""
    return f"{TOPICS_TO_DELETE}/{name}"
