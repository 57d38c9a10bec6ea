"""Lag of followers, and the rate of ISR changes, under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.observation.metric import PIECE, Metric
from broker.replication.fetcher_manager import FetcherId, ReplicaFetcherManager
from broker.replication.isr_changes import IsrProposals
from broker.replication.replica_fetcher import ReplicaFetcher

_MANAGER: Final = "kafka_server_replicafetchermanager_"


def isr_metrics(proposals: IsrProposals) -> Iterator[Metric]:
    """Iterate over the counts of changed and rejected ISRs of led partitions."""
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
    running = fetchers.fetchers()
    following = [
        (name, each)
        for name, fetcher in running.items()
        for each in fetcher.following.values()
    ]
    for number, (name, each) in enumerate(following, 1):
        # The lag is unknown before the first response.
        if each.lag is not None:
            topic, index = each.partition.key
            yield Metric(
                name="kafka_server_fetcherlagmetrics_consumerlag",
                kind="gauge",
                value=each.lag,
                labels={
                    "clientid": _client_id(name),
                    "topic": topic,
                    "partition": str(index),
                },
            )
        if not number % PIECE:
            yield None
    for name, fetcher in running.items():
        yield from _fetcher_stats(name, fetcher, fetchers.address_of(name.leader))
    gauges = {
        # In messages.
        "maxlag": max((each.lag or 0 for _, each in following), default=0),
        # In requests per second, of the slowest fetcher.
        "minfetchrate": min(
            (each.rate.per_s(each.now_ns()) for each in running.values()), default=0.0
        ),
        "failedpartitionscount": sum(each.fenced for _, each in following),
        # A failed round is counted below, and its fetcher continues.
        "deadthreadcount": 0,
    }
    for gauge, value in gauges.items():
        labels = {"clientid": "Replica"}
        yield Metric(name=_MANAGER + gauge, kind="gauge", value=value, labels=labels)
    yield Metric(
        name="doorkeeper_replica_fetcher_failures",
        kind="counter",
        value=fetchers.failures,
        suffix="_total",
    )


def _client_id(name: FetcherId) -> str:
    """Return the name of the corresponding fetcher thread in Kafka."""
    return f"ReplicaFetcherThread-{name.number}-{name.leader}"


def _fetcher_stats(
    name: FetcherId, fetcher: ReplicaFetcher, address: tuple[str, int] | None
) -> Iterator[Metric]:
    host, port = address or ("", -1)
    for counted, count in (("requests", fetcher.requests), ("bytes", fetcher.bytes)):
        yield Metric(
            name=f"kafka_server_fetcherstats_{counted}",
            kind="counter",
            value=count,
            labels={
                "clientid": _client_id(name),
                "brokerhost": host,
                "brokerport": str(port),
            },
            suffix="_total",
        )
