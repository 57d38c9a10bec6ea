"""Settings of a policy: weights, seats, bounds, options of its own."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from schedulers.contract.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Settings of a policy at construction.

    ``weights`` maps a request class to its share (missing: 1.0); ``seats`` is the
    number of jobs that can be in service at once (the D of SFQ(D)); ``ageing_ns`` is
    the longest time for which strict priority may pass over a job (None: no bound);
    ``quantum_ns`` is the slice of time-sharing policies; ``options`` are a policy's
    own named settings, as numbers.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    seats: int = 1
    ageing_ns: int | None = None
    quantum_ns: int = 1_000_000
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        assert self.seats >= 1, self.seats
        assert self.quantum_ns >= 1, self.quantum_ns
        assert self.ageing_ns is None or self.ageing_ns >= 1, self.ageing_ns
        assert all(weight > 0 for weight in self.weights.values()), self.weights

    def weight(self, job: Job) -> float:
        """Return the share of the job's class."""
        return self.weights.get(job.request_class, 1.0)

    def option(self, name: str, default: float, *, least: float = 0.0) -> float:
        """Return a policy's own setting.

        :raises BadSetting: if the setting is below ``least``.
        """
        value = self.options.get(name, default)
        if value < least:
            raise BadSetting(f"{name} = {value}, expected at least {least}")
        return value


class BadSetting(ValueError):
    """An option that a policy does not know, or a value that it cannot use."""
