"""Metrics of groups by state, and of commits, expirations and deletions of offsets.

Kafka: ``kafka.coordinator.group:type=GroupMetadataManager`` and the totals of the rates
in ``group-coordinator-metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.groups.group_coordinator import GroupCoordinator, GroupStatistics
from broker.observation.metric import Metric
from broker.protocol.topic_partition import TopicPartition

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager_"
_COORDINATOR: Final = "kafka_server_group_coordinator_metrics_"


def group_metrics(coordinator: GroupCoordinator) -> Iterator[Metric | None]:
    """Iterate over the metrics of one group coordinator."""
    statistics = yield from coordinator.count()
    gauges = {"numgroups": statistics.groups, "numoffsets": statistics.offsets}
    for state, count in statistics.groups_by_state.items():
        gauges[f"numgroups{state.value.lower()}"] = count
    for name, value in gauges.items():
        yield Metric(name=_MANAGER + name, kind="gauge", value=value)
    for kind, count in _counts_by_protocol(statistics).items():
        yield Metric(
            name=_COORDINATOR + "group_count",
            kind="gauge",
            value=count,
            labels={"protocol": kind},
        )
    for label, count in statistics.consumer_groups_by_state.items():
        yield Metric(
            name=_COORDINATOR + "consumer_group_count",
            kind="gauge",
            value=count,
            labels={"state": label.lower()},
        )
    totals = {
        "offset_commit_count": statistics.counters.offset_commits,
        "offset_expiration_count": statistics.counters.offset_expirations,
        "offset_deletion_count": statistics.counters.offset_deletions,
        "group_completed_rebalance_count": statistics.completed_rebalances,
        "consumer_group_rebalance_count": statistics.consumer_rebalances,
        "partition_load_count": statistics.partition_loads,
    }
    yield Metric(
        name="doorkeeper_group_unreadable_batches",
        kind="counter",
        value=statistics.unreadable_batches,
        suffix="_total",
    )
    for name, value in totals.items():
        yield Metric(
            name=_COORDINATOR + name, kind="counter", value=value, suffix="_total"
        )


def group_lag_metrics(
    coordinator: GroupCoordinator, end_offset: Callable[[TopicPartition], int | None]
) -> Iterator[Metric | None]:
    """Iterate over the lag of each group that is coordinated here.

    Kafka's brokers have no such metric; the names are those of ``kafka_exporter``.
    ``end_offset`` returns the first offset that consumers cannot read yet. None: this
    broker has no replica of the partition, whose lag is left out.
    """
    for commit in coordinator.committed():
        if commit is None:
            yield None
            continue
        group_id, partition, offset = commit
        end = end_offset(partition)
        if end is None:
            continue
        labels = {
            "consumergroup": group_id,
            "topic": partition.topic,
            "partition": str(partition.partition),
        }
        yield Metric(
            name="kafka_consumergroup_lag",
            kind="gauge",
            value=max(end - offset, 0),
            labels=labels,
        )


def _counts_by_protocol(statistics: GroupStatistics) -> dict[str, int]:
    consumers = sum(statistics.consumer_groups_by_state.values())
    return {"classic": statistics.groups - consumers, "consumer": consumers}
