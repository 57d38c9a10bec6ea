"""Number of requests in each purgatory (Kafka: ``DelayedOperationPurgatory``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.observation.metric import Metric
from broker.requests.purgatory import Purgatory


def purgatory_metrics(purgatories: Iterable[Purgatory]) -> Iterator[Metric]:
    """Iterate over Kafka's sizes, and the counts of expired operations.

    A completed operation leaves its purgatory at once. ``PurgatorySize``, which in
    Kafka includes completed operations, therefore equals ``NumDelayedOperations`` here.
    """
    for purgatory in purgatories:
        labels = {"delayedoperation": purgatory.name}
        for name in ("purgatorysize", "numdelayedoperations"):
            yield Metric(
                name=f"kafka_server_delayedoperationpurgatory_{name}",
                kind="gauge",
                value=purgatory.size,
                labels=labels,
            )
        yield Metric(
            name="kafka_server_delayedoperationpurgatory_expires",
            kind="counter",
            value=purgatory.expired_total,
            labels=labels,
            suffix="_total",
        )
