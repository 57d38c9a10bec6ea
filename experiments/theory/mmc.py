"""Several servers: M/M/c, shared by classes or split among them.

Sources: Erlang 1917; Cobham 1954; Kleinrock, Queueing Systems vol. 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from experiments.theory.mg1 import Unstable


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that an arrival has to wait; ``load`` is in servers.

    :raises Unstable: if ``load`` is not below ``servers``.
    """
    if load >= servers:
        raise Unstable(f"load {load:.3f} at {servers} servers")
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return servers * blocked / (servers - load * (1 - blocked))


@dataclass(frozen=True, slots=True, kw_only=True)
class MMc:
    """Classes of Poisson arrivals, one exponential service, several servers."""

    servers: int
    rates: tuple[float, ...]
    mean: float

    def fifo(self) -> float:
        """Return W of every class."""
        return self._wait(sum(self.rates))

    def fifo_quantile(self, quantile: float) -> float:
        """Return the quantile of W: 0 if more requests than that do not wait."""
        arrives = erlang_c(self.servers, sum(self.rates) * self.mean)
        free = self.servers / self.mean - sum(self.rates)
        return max(0.0, math.log(arrives / (1 - quantile)) / free)

    def nonpreemptive(self) -> tuple[float, ...]:
        """Return W of each class under non-preemptive priority."""
        arrives = erlang_c(self.servers, sum(self.rates) * self.mean)
        above = [0.0, *(self._load(rate) for rate in accumulate(self.rates))]
        return tuple(
            arrives * self.mean / self.servers / ((1 - before) * (1 - until))
            for before, until in pairwise(above)
        )

    def preemptive(self) -> tuple[float, ...]:
        """Return T of each class under preemptive-resume priority."""
        totals = [0.0, *accumulate(self.rates)]
        numbers = [rate * (self._wait(rate) + self.mean) for rate in totals]
        return tuple(
            (until - before) / rate
            for before, until, rate in zip(
                numbers, numbers[1:], self.rates, strict=False
            )
        )

    def split(self, servers: Sequence[int]) -> tuple[float, ...]:
        """Return W of each class with its own servers: separate planes.

        Infinite for a class whose load exceeds its servers.
        """
        assert sum(servers) == self.servers
        return tuple(
            MMc(servers=count, rates=(rate,), mean=self.mean).fifo()
            if rate * self.mean < count
            else math.inf
            for count, rate in zip(servers, self.rates, strict=True)
        )

    def _load(self, rate: float) -> float:
        return rate * self.mean / self.servers

    def _wait(self, rate: float) -> float:
        arrives = erlang_c(self.servers, rate * self.mean)
        return arrives * self.mean / (self.servers * (1 - self._load(rate)))
