"""Numbers of groups, their states, and the outcomes of their offsets.

Kafka: ``kafka.coordinator.group:type=GroupMetadataManager`` and the totals behind the
rates of ``group-coordinator-metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.groups.coordinator import GroupCoordinator
from broker.observation.metric import Metric

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
    totals = {
        "offset_commit_count": statistics.counters.offset_commits,
        "offset_expiration_count": statistics.counters.offset_expirations,
        "offset_deletion_count": statistics.counters.offset_deletions,
        "group_completed_rebalance_count": statistics.completed_rebalances,
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
