"""Closed forms: what queueing theory says a scheduler must do. The first witness.

Units are the caller's, the same for all times of one call; rates are per that unit.
Classes are listed from the most urgent to the least. ``W`` is time in queue, ``T`` time
in system. Formulas of one server are for Poisson arrivals and general service (M/G/1)
given by mean and second moment; those of several are for exponential service (M/M/c).

Sources: Pollaczek 1930 and Khinchine 1932; Cobham 1954; Kleinrock 1964 and 1965,
Queueing Systems vol. 2; Schrage and Miller 1966; Harchol-Balter, Performance Modeling
and Design of Computer Systems, ch. 28 to 33. The checkpoint form follows from PASTA.
Schedulers' fairness bounds: Golestani 1994, Goyal et al. 1996, Shreedhar and Varghese
1996, Bennett and Zhang 1996, Jin et al. 2004.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from scipy.integrate import quad


class Unstable(ValueError):
    """More work is offered than the servers can do: there is no steady state."""


# ---- one server: M/G/1 with classes -----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MG1:
    """Classes of Poisson arrivals at one server, most urgent first.

    ``rates``, ``means`` and ``squares`` are each class's arrival rate, E[S] and E[S^2].
    """

    rates: tuple[float, ...]
    means: tuple[float, ...]
    squares: tuple[float, ...]

    def __post_init__(self) -> None:
        assert len(self.rates) == len(self.means) == len(self.squares)
        if self.load >= 1:
            raise Unstable(f"load {self.load:.3f}")

    @classmethod
    def exponential(cls, rates: Sequence[float], means: Sequence[float]) -> MG1:
        """Make the system whose services are exponential."""
        squares = tuple(2 * mean * mean for mean in means)
        return cls(rates=tuple(rates), means=tuple(means), squares=squares)

    @property
    def loads(self) -> tuple[float, ...]:
        """Return each class's share of the server."""
        return tuple(r * b for r, b in zip(self.rates, self.means, strict=True))

    @property
    def load(self) -> float:
        """Return the server's utilisation."""
        return sum(self.loads)

    @property
    def residuals(self) -> tuple[float, ...]:
        """Return each class's part of the work that an arrival finds in service."""
        return tuple(r * s / 2 for r, s in zip(self.rates, self.squares, strict=True))

    def fifo(self) -> float:
        """Return W of every class (Pollaczek-Khinchine); also the mean work E[V]."""
        return sum(self.residuals) / (1 - self.load)

    def nonpreemptive(self) -> tuple[float, ...]:
        """Return W of each class under non-preemptive priority (Cobham)."""
        above = [0.0, *accumulate(self.loads)]
        residual = sum(self.residuals)
        return tuple(
            residual / ((1 - before) * (1 - until)) for before, until in pairwise(above)
        )

    def preemptive(self) -> tuple[float, ...]:
        """Return T of each class under preemptive-resume priority."""
        above = [0.0, *accumulate(self.loads)]
        residuals = list(accumulate(self.residuals))
        return tuple(
            mean / (1 - before) + residual / ((1 - before) * (1 - until))
            for mean, residual, before, until in zip(
                self.means, residuals, above, above[1:], strict=False
            )
        )

    def checkpointed(self, segment_squares: Sequence[float]) -> float:
        """Return W of the first class if others are preempted only between segments.

        ``segment_squares[j]`` is E[sum of g^2] over the uninterruptible segments g of a
        job of the j-th lower class; see `exponential_segments`.
        """
        lower = sum(
            rate * square / 2
            for rate, square in zip(self.rates[1:], segment_squares, strict=True)
        )
        return (self.residuals[0] + lower) / (1 - self.loads[0])

    def ageing(self, slopes: Sequence[float]) -> tuple[float, ...]:
        """Return W of each class if priority grows with waiting at the class's slope.

        ``slopes`` fall from the first class to the last (Kleinrock 1964).
        """
        assert list(slopes) == sorted(slopes, reverse=True), slopes
        loads, waits = self.loads, [0.0] * len(slopes)
        for k in reversed(range(len(slopes))):
            slower = sum(
                loads[i] * waits[i] * (1 - slopes[i] / slopes[k])
                for i in range(k + 1, len(slopes))
            )
            faster = sum(loads[i] * (1 - slopes[k] / slopes[i]) for i in range(k))
            waits[k] = (self.fifo() - slower) / (1 - faster)
        return tuple(waits)

    def conserved(self) -> float:
        """Return sum(load * W), the same for every non-preemptive order of classes."""
        return self.load * self.fifo()

    def misclassified(self, share: float) -> MG1:
        """Return the system in which ``share`` of the second class joins the first."""
        assert len(self.rates) == 2
        first, second = self.rates
        moved = share * second
        weights = first / (first + moved), moved / (first + moved)

        def mixed(values: tuple[float, ...]) -> float:
            return weights[0] * values[0] + weights[1] * values[1]

        return MG1(
            rates=(first + moved, second - moved),
            means=(mixed(self.means), self.means[1]),
            squares=(mixed(self.squares), self.squares[1]),
        )

    def optimal_order(self, costs: Sequence[float]) -> tuple[int, ...]:
        """Return the non-preemptive order that minimises sum(cost * rate * W): c-mu."""
        return tuple(
            sorted(range(len(costs)), key=lambda k: (-costs[k] / self.means[k], k))
        )


def exponential_segments(mean: float, segment: float) -> float:
    """Return E[sum of g^2] for an exponential job cut into segments of equal length.

    The last segment is what remains. As ``segment`` grows this becomes E[S^2].
    """
    x = segment / mean
    survives = math.exp(-x)
    last = mean * mean * (2 - survives * (x * x + 2 * x + 2)) / (1 - survives)
    return segment * segment * survives / (1 - survives) + last


def quantised_load(load: float, quantum: float, switch: float) -> float:
    """Return the load of round robin, each quantum of which costs a switch besides."""
    return load * (1 + switch / quantum)


# ---- one server, by size ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Poisson arrivals of jobs whose sizes have a density: M/G/1 by size."""

    rate: float
    density: Callable[[float], float]
    survival: Callable[[float], float]
    largest: float

    @classmethod
    def exponential(cls, rate: float, mean: float) -> Sizes:
        """Make the system whose sizes are exponential."""
        return cls(
            rate=rate,
            density=lambda x: math.exp(-x / mean) / mean,
            survival=lambda x: math.exp(-x / mean),
            largest=60 * mean,
        )

    def fifo(self) -> float:
        """Return the mean T."""
        return self._square(self.largest) / 2 / (1 - self.load()) + self._mean()

    def processor_sharing(self, size: float) -> float:
        """Return the mean T of a job of a size; the slowdown is the same for all."""
        return size / (1 - self.load())

    def sjf(self, size: float) -> float:
        """Return the mean T: shortest job first, not preempted."""
        work = self._square(self.largest) / 2
        return size + work / (1 - self.load(size)) ** 2

    def psjf(self, size: float) -> float:
        """Return the mean T: shortest job first by its original size, preempted."""
        free = 1 - self.load(size)
        return self._square(size) / 2 / free**2 + size / free

    def srpt(self, size: float) -> float:
        """Return the mean T: shortest remaining processing time (Schrage-Miller)."""
        work = self._square(size) + self.rate * size * size * self.survival(size)
        waiting = work / 2 / (1 - self.load(size)) ** 2
        return waiting + _integral(lambda t: 1 / (1 - self.load(t)), size)

    def las(self, size: float) -> float:
        """Return the mean T: least attained service first (foreground-background)."""
        # E[min(S, x)] and E[min(S, x)^2] by parts.
        load = self.rate * _integral(self.survival, size)
        square = self.rate * _integral(lambda t: 2 * t * self.survival(t), size)
        return square / 2 / (1 - load) ** 2 + size / (1 - load)

    def mean_over_sizes(self, of_size: Callable[[float], float]) -> float:
        """Return the mean of a function of size over all jobs."""
        return _integral(lambda x: of_size(x) * self.density(x), self.largest)

    def load(self, size: float = math.inf) -> float:
        """Return the load of the jobs up to a size."""
        upper = min(size, self.largest)
        return self.rate * _integral(lambda t: t * self.density(t), upper)

    def _mean(self) -> float:
        return self.load() / self.rate

    def _square(self, size: float) -> float:
        return self.rate * _integral(lambda t: t * t * self.density(t), size)


def _integral(function: Callable[[float], float], upper: float) -> float:
    """Integrate from 0, in pieces so that a long tail cannot hide a short head."""
    edges = [0.0] + [upper / 16**k for k in (2, 1, 0)]
    return math.fsum(
        quad(function, low, high, limit=100)[0] for low, high in pairwise(edges)
    )


# ---- several servers: M/M/c -------------------------------------------------------


def erlang_c(servers: int, load: float) -> float:
    """Return the chance that an arrival has to wait; ``load`` is in servers.

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
        """Return W of each class with servers of its own: separate planes.

        Infinite for a class that its own servers cannot carry.
        """
        assert sum(servers) == self.servers
        return tuple(
            MMc(servers=count, rates=(rate,), mean=self.mean).fifo()
            if rate * self.mean < count
            else math.inf
            for count, rate in zip(servers, self.rates, strict=True)
        )

    def plane_pays(self) -> bool:
        """Say whether one server of its own beats NP priority for the first class."""
        waits = self.split((1, self.servers - 1))[0]
        return waits < self.nonpreemptive()[0]

    def _load(self, rate: float) -> float:
        return rate * self.mean / self.servers

    def _wait(self, rate: float) -> float:
        arrives = erlang_c(self.servers, rate * self.mean)
        return arrives * self.mean / (self.servers * (1 - self._load(rate)))


def general_service(wait: float, variation: float) -> float:
    """Return about W of M/G/c, of M/M/c's W and the service's coefficient of variation.

    Lee and Longton's approximation; exact for one server.
    """
    return wait * (1 + variation * variation) / 2


# ---- more than can be done: shares ------------------------------------------------


def share_of_fifo(rates: Sequence[float], means: Sequence[float]) -> list[float]:
    """Return each class's throughput at one overloaded FIFO server."""
    offered = sum(r * b for r, b in zip(rates, means, strict=True))
    return [rate / max(offered, 1.0) for rate in rates]


def share_of_priority(rates: Sequence[float], means: Sequence[float]) -> list[float]:
    """Return each class's throughput under strict priority."""
    free, shares = 1.0, []
    for rate, mean in zip(rates, means, strict=True):
        shares.append(min(rate, max(free, 0.0) / mean))
        free -= rate * mean
    return shares


def share_by_weight(
    demands: Sequence[float], weights: Sequence[float], capacity: float = 1.0
) -> list[float]:
    """Return each flow's service under weighted max-min fairness: water-filling."""
    shares = [0.0] * len(demands)
    thirsty = sorted(range(len(demands)), key=lambda k: demands[k] / weights[k])
    left, weight = capacity, math.fsum(weights)
    for k in thirsty:
        shares[k] = min(demands[k], left * weights[k] / weight)
        left -= shares[k]
        weight -= weights[k]
    return shares


def jain_index(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 if all are equal, 1/n if one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(x * x for x in shares))


# ---- fair queueing: bounds --------------------------------------------------------


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
