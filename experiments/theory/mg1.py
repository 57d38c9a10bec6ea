"""One server with classes: M/G/1, by mean and second moment of each class's service.

Classes are listed from the most urgent to the least. ``W`` is time in queue, ``T`` time
in system. The caller chooses the unit, which is the same for all times of one call.

Sources: Pollaczek 1930 and Khinchine 1932; Cobham 1954; Kleinrock 1964 and 1965,
Queueing Systems vol. 2. The checkpoint form follows from PASTA.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


class Unstable(ValueError):
    """The offered work exceeds the servers' capacity, so there is no steady state."""


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
        """Return the system with exponential services."""
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
        """Return sum(load * W), equal for every non-preemptive order of classes."""
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


def exponential_segments(mean: float, segment: float) -> float:
    """Return E[sum of g^2] for an exponential job cut into segments of equal length.

    The last segment is the remainder. As ``segment`` grows the result approaches
    E[S^2].
    """
    x = segment / mean
    survives = math.exp(-x)
    last = mean * mean * (2 - survives * (x * x + 2 * x + 2)) / (1 - survives)
    return segment * segment * survives / (1 - survives) + last
