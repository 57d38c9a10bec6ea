"""Metrics of waiting markers and of the outcomes of chores.

Kafka: ``kafka.coordinator.transaction:type=TransactionMarkerChannelManager``, and the
totals of ``transaction-coordinator-metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.observation.metric import Metric
from broker.transactions.transaction_coordinator import TransactionCoordinator

_CHANNELS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"


def transaction_metrics(transactions: TransactionCoordinator) -> Iterator[Metric]:
    """Iterate over the metrics of one transaction coordinator."""
    markers = transactions.markers
    gauges = {
        "unknowndestinationqueuesize": markers.unknown_destinations,
        "logappendretryqueuesize": markers.resting_ends,
    }
    for name, value in gauges.items():
        yield Metric(name=_CHANNELS + name, kind="gauge", value=value)
    totals = {
        "kafka_server_transaction_coordinator_metrics_partition_load_count": (
            transactions.partition_loads
        ),
        "doorkeeper_transactions_aborted_by_time_out": transactions.aborted_by_time_out,
        "doorkeeper_transactional_ids_expired": transactions.expired_ids,
        "doorkeeper_transaction_unreadable_batches": transactions.unreadable_batches,
    }
    for name, value in totals.items():
        yield Metric(name=name, kind="counter", value=value, suffix="_total")
