"""How far followers lag behind, and how often ISRs change, under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.observation.metric import PIECE, Metric
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.isr_changes import IsrProposals

_MANAGER: Final = "kafka_server_replicafetchermanager_"


def isr_metrics(proposals: IsrProposals) -> Iterator[Metric]:
    """Iterate over how often the controller has changed an ISR led here, or refused."""
    counts = {
        "isrshrinks": proposals.shrinks,
        "isrexpands": proposals.expands,
        "failedisrupdates": proposals.refusals,
    }
    for name, count in counts.items():
        yield Metric(
            name="kafka_server_replicamanager_" + name,
            kind="counter",
            value=count,
            suffix="_total",
        )


def replica_fetcher_metrics(fetchers: ReplicaFetcherManager) -> Iterator[Metric | None]:
    """Iterate over the metrics of all followers. Cost: O(followers)."""
    following = [each for one in fetchers.fetchers() for each in one.following.values()]
    for number, each in enumerate(following, 1):
        topic, index = each.partition.key
        yield Metric(
            name="kafka_server_fetcherlagmetrics_consumerlag",
            kind="gauge",
            value=each.lag or 0,
            labels={"topic": topic, "partition": str(index)},
        )
        if not number % PIECE:
            yield None
    gauges = {
        # In messages.
        "maxlag": max((each.lag or 0 for each in following), default=0),
        "failedpartitionscount": sum(each.fenced for each in following),
    }
    for name, value in gauges.items():
        labels = {"clientid": "Replica"}
        yield Metric(name=_MANAGER + name, kind="gauge", value=value, labels=labels)
    yield Metric(
        name="doorkeeper_replica_fetcher_failures",
        kind="counter",
        value=fetchers.failures,
        suffix="_total",
    )
