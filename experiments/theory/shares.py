"""Throughput of each class at an overloaded server, by policy."""

from __future__ import annotations

import math
from collections.abc import Sequence


def share_by_connections(
    rates: Sequence[float], means: Sequence[float], connections: Sequence[int]
) -> list[float]:
    """Return each class's throughput at an overloaded FIFO broker such as Kafka.

    A connection has one request in the broker at a time. Once each connection of a
    class has one there, a higher arrival rate has no effect. FIFO then serves
    connections in turn, so the share of a class follows their number.
    """
    demands = [rate * mean for rate, mean in zip(rates, means, strict=True)]
    weights = [n * mean for n, mean in zip(connections, means, strict=True)]
    served = share_by_weight(demands, weights)
    return [work / mean for work, mean in zip(served, means, strict=True)]


def share_of_priority(rates: Sequence[float], means: Sequence[float]) -> list[float]:
    """Return each class's throughput under strict priority."""
    free, shares = 1.0, []
    for rate, mean in zip(rates, means, strict=True):
        shares.append(min(rate, max(free, 0.0) / mean))
        free -= rate * mean
    return shares


def share_by_weight(demands: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the share of one server for each flow: weighted max-min fairness.

    Computed by water-filling.
    """
    shares = [0.0] * len(demands)
    thirsty = sorted(range(len(demands)), key=lambda k: demands[k] / weights[k])
    left, weight = 1.0, math.fsum(weights)
    for k in thirsty:
        shares[k] = min(demands[k], left * weights[k] / weight)
        left -= shares[k]
        weight -= weights[k]
    return shares
