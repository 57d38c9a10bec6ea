"""One server, by size: M/G/1 under orders that use the size of jobs.

Sources: Schrage and Miller 1966; Kleinrock 1967; Harchol-Balter, Performance Modeling
and Design of Computer Systems, ch. 28 to 33.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from scipy.integrate import quad


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Poisson arrivals of jobs whose sizes have a density: M/G/1 by size."""

    rate: float
    density: Callable[[float], float]
    survival: Callable[[float], float]
    largest: float

    @classmethod
    def exponential(cls, rate: float, mean: float) -> Sizes:
        """Return the system with exponential sizes."""
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
        """Return the mean T of a job of a size; the slowdown is equal for all sizes."""
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

    def mean_over_sizes(
        self,
        of_size: Callable[[float], float],
        density: Callable[[float], float] | None = None,
    ) -> float:
        """Return the mean of a function of size over all jobs, or over one kind."""
        of_kind = density or self.density
        return _integral(lambda x: of_size(x) * of_kind(x), self.largest)

    def load(self, size: float = math.inf) -> float:
        """Return the load of the jobs up to a size."""
        upper = min(size, self.largest)
        return self.rate * _integral(lambda t: t * self.density(t), upper)

    def _mean(self) -> float:
        return self.load() / self.rate

    def _square(self, size: float) -> float:
        return self.rate * _integral(lambda t: t * t * self.density(t), size)


def _integral(function: Callable[[float], float], upper: float) -> float:
    """Integrate from 0, in pieces, so that a long tail does not hide a short head."""
    edges = [0.0] + [upper / 16**k for k in (2, 1, 0)]
    return math.fsum(
        quad(function, low, high, limit=100)[0] for low, high in pairwise(edges)
    )
