"""Overload: which class gets how much, and how far fair queueing may be off.

Sources: Golestani 1994 (SCFQ); Goyal, Vin, Cheng 1996 (SFQ); Shreedhar and Varghese
1996 (DRR); Bennett and Zhang 1996 (WF2Q); Jin, Chase, Kaur 2004 (SFQ(D)); Parekh and
Gallager 1993 (PGPS).
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def share_of_fifo(rates: Sequence[float], means: Sequence[float]) -> list[float]:
    """Return each class's throughput at one overloaded FIFO server."""
    offered = sum(r * b for r, b in zip(rates, means, strict=True))
    return [rate / max(offered, 1.0) for rate in rates]


def share_by_connections(
    rates: Sequence[float], means: Sequence[float], connections: Sequence[int]
) -> list[float]:
    """Return each class's throughput at an overloaded FIFO broker such as Kafka.

    A connection has one request in the broker at a time. Once all of a class's
    connections have one there, it cannot press harder. FIFO then serves connections in
    turn, and a class's share follows their number, whatever its arrival rate.
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
    """Return the share of one server that each flow gets: weighted max-min fairness.

    Found by water-filling.
    """
    shares = [0.0] * len(demands)
    thirsty = sorted(range(len(demands)), key=lambda k: demands[k] / weights[k])
    left, weight = 1.0, math.fsum(weights)
    for k in thirsty:
        shares[k] = min(demands[k], left * weights[k] / weight)
        left -= shares[k]
        weight -= weights[k]
    return shares


def jain_index(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 if all are equal, 1/n if one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(x * x for x in shares))


def sfq_bound(costs: tuple[float, float], weights: tuple[float, float]) -> float:
    """Return how far two backlogged flows' weighted services differ: SFQ and SCFQ."""
    return costs[0] / weights[0] + costs[1] / weights[1]


def sfq_d_bound(
    seats: int, costs: tuple[float, float], weights: tuple[float, float]
) -> float:
    """Return the same for SFQ(D) with ``seats`` jobs in service at once."""
    return (seats + 1) * sfq_bound(costs, weights)


def drr_bound(least_quantum: float, largest_cost: float) -> float:
    """Return the same for deficit round robin, services weighted by quanta."""
    return least_quantum + 2 * largest_cost


def pgps_delay_bound(largest_cost: float, rate: float) -> float:
    """Return by how much a job may end later under WFQ or WF2Q than under GPS."""
    return largest_cost / rate
