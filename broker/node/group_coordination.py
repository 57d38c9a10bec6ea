"""Construction of a broker's group coordinator: its settings, log and partitions.

The coordinator follows leadership: it coordinates a partition of ``__consumer_offsets``
while this broker leads that partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC
from broker.cluster.group_configs import consumer_settings
from broker.cluster.partition import Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.config import (
    ASSIGNOR_CLASSES,
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_LOAD_BUFFER_SIZE,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
    OFFSETS_TOPIC_COMPRESSION_CODEC,
    BrokerConfig,
)
from broker.groups.consumer.subscribed_topics import ClusterTopics
from broker.groups.group_coordinator import GroupCoordinator
from broker.groups.state.group_settings import (
    ConsumerSettings,
    GroupConfig,
    MigrationPolicy,
)
from broker.node.background import PlaneDuty
from broker.node.deletions import Deletions
from broker.node.flush_shell import QueuedFlushes
from broker.node.replicated_shard_log import ReplicatedShardLog
from broker.requests.classifier import GROUP
from broker.requests.internal_tasks import Submit
from broker.shards.shards import Clock

_MS_PER_MINUTE = 60_000


def start_groups(
    config: BrokerConfig,
    replicas: ReplicaManager,
    flushes: QueuedFlushes,
    *,
    partitions: int,
    clock: Clock,
    rng: random.Random,
    topics: ClusterTopics,
    own_configs: Callable[[str], Mapping[str, str] | None],
    on_earlier_deadline: Callable[[], None],
) -> GroupCoordinator:
    """Return the coordinator of a broker that leads nothing yet.

    ``partitions`` is the partition count of ``__consumer_offsets``, which may differ
    from ``offsets.topic.num.partitions``: groups must not change their partition.
    ``own_configs`` returns the configs of a group.
    """

    def own_settings(group_id: str) -> ConsumerSettings | None:
        own = own_configs(group_id)
        return consumer_settings(own, config) if own else None

    log = ReplicatedShardLog(
        GROUP_METADATA_TOPIC,
        replicas,
        flushes,
        clock,
        codec=config[OFFSETS_TOPIC_COMPRESSION_CODEC],
        timeout_ms=config[OFFSETS_COMMIT_TIMEOUT_MS],
        load_bytes=config[OFFSETS_LOAD_BUFFER_SIZE],
    )
    groups = GroupCoordinator(
        group_config(config, partitions),
        log=log,
        clock=clock,
        rng=rng,
        topics=topics,
        own_settings=own_settings,
        on_earlier_deadline=on_earlier_deadline,
    )

    def follow(partition: Partition, leads: bool) -> None:
        name, index = partition.key
        if name == GROUP_METADATA_TOPIC and leads:
            groups.elect(index)
        elif name == GROUP_METADATA_TOPIC:
            groups.resign(index)

    replicas.leadership_listeners.append(follow)
    return groups


def group_duties(
    groups: GroupCoordinator,
    deletions: Deletions,
    *,
    submit: Submit,
    now_ns: Callable[[], int],
    moved: Callable[[], None],
) -> Iterator[PlaneDuty]:
    """Yield the background duties of groups, as tasks of class group.

    Duties fail and pause independently.
    """
    for name, next_ns, step in (
        ("groups", groups.next_event_ns, groups.work),
        ("group loading", groups.loading.next_ns, groups.loading.work),
        ("group deletions", deletions.next_ns, deletions.step),
    ):
        yield PlaneDuty(
            name,
            GROUP,
            next_ns,
            step,
            submit=submit,
            now_ns=now_ns,
            moved=moved,
        )


def group_config(config: BrokerConfig, partitions: int) -> GroupConfig:
    """Return the coordinator's part of a broker's configuration."""
    return GroupConfig(
        group_min_session_timeout_ms=config[GROUP_MIN_SESSION_TIMEOUT_MS],
        group_max_session_timeout_ms=config[GROUP_MAX_SESSION_TIMEOUT_MS],
        group_initial_rebalance_delay_ms=config[GROUP_INITIAL_REBALANCE_DELAY_MS],
        group_max_size=config[GROUP_MAX_SIZE],
        offset_metadata_max_bytes=config[OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=config[OFFSETS_RETENTION_MINUTES] * _MS_PER_MINUTE,
        offsets_retention_check_interval_ms=config[OFFSETS_RETENTION_CHECK_INTERVAL_MS],
        offsets_topic_num_partitions=partitions,
        consumer_session_timeout_ms=config[GROUP_CONSUMER_SESSION_TIMEOUT_MS],
        consumer_heartbeat_interval_ms=config[GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
        consumer_max_size=config[GROUP_CONSUMER_MAX_SIZE],
        consumer_assignors=tuple(
            ASSIGNOR_CLASSES.get(name, name)
            for name in config[GROUP_CONSUMER_ASSIGNORS]
        ),
        consumer_assignment_interval_ms=config[GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS],
        consumer_regex_refresh_interval_ms=config[
            GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS
        ],
        consumer_migration_policy=MigrationPolicy(
            config[GROUP_CONSUMER_MIGRATION_POLICY].lower()
        ),
    )
