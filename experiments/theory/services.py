"""A service as input of closed forms: its moments, its density, its segments.

Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from experiments.design.workload import (
    ChoiceService,
    ConstantService,
    ExponentialService,
    LognormalService,
    ParetoService,
    PublishedService,
    RecordedService,
    Service,
)
from experiments.theory.mg1 import exponential_segments

_US = 1e-6
# Tails beyond this many standard deviations of the logarithm are ignored.
_DEVIATIONS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The mean and the mean square of a service, in seconds."""

    mean: float
    square: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """A service with a density; sizes above ``largest`` are ignored."""

    density: Callable[[float], float]
    survival: Callable[[float], float]
    largest: float


def moments(service: Service) -> Moments:
    """Return the moments of a service."""
    match service:
        case ConstantService():
            mean = service.mean_us * _US
            return Moments(mean=mean, square=mean * mean)
        case ExponentialService():
            mean = service.mean_us * _US
            return Moments(mean=mean, square=2 * mean * mean)
        case LognormalService():
            mean = service.mean_us * _US
            return Moments(mean=mean, square=mean * mean * (1 + service.cv**2))
        case ChoiceService():
            first, second = (
                sum(
                    weight * (value * _US) ** power
                    for value, weight in zip(
                        service.values_us, service.weights, strict=True
                    )
                )
                / sum(service.weights)
                for power in (1, 2)
            )
            return Moments(mean=first, square=second)
        case ParetoService():
            return Moments(mean=_pareto(service, 1), square=_pareto(service, 2))
        case PublishedService():
            return moments(service.choice())
        case RecordedService():
            raise ValueError("service times of a trace have no distribution")


def density(service: Service) -> Density | None:
    """Return the density of a service, None for a discrete distribution."""
    match service:
        case ExponentialService():
            mean = service.mean_us * _US
            return Density(
                density=lambda x: math.exp(-x / mean) / mean,
                survival=lambda x: math.exp(-x / mean),
                largest=60 * mean,
            )
        case LognormalService():
            return _lognormal_density(service)
        case ParetoService():
            return _pareto_density(service)
    return None


def segments_square(service: Service, segment: float) -> float | None:
    """Return E[sum of g^2] over equal pieces and a remainder; None if unknown."""
    match service:
        case ConstantService():
            whole, rest = divmod(service.mean_us * _US, segment)
            return whole * segment * segment + rest * rest
        case ExponentialService():
            return exponential_segments(service.mean_us * _US, segment)
    return None


def _pareto(service: ParetoService, power: int) -> float:
    """Return a moment of the bounded Pareto distribution."""
    low, high, alpha = service.low_us * _US, service.high_us * _US, service.alpha
    scale = alpha * math.pow(low, alpha) / (1 - math.pow(low / high, alpha))
    if alpha == power:
        return scale * math.log(high / low)
    order = power - alpha
    return scale * (math.pow(high, order) - math.pow(low, order)) / order


def _pareto_density(service: ParetoService) -> Density:
    low, high, alpha = service.low_us * _US, service.high_us * _US, service.alpha
    kept = 1 - math.pow(low / high, alpha)

    def density(x: float) -> float:
        if not low <= x <= high:
            return 0.0
        return alpha / x * math.pow(low / x, alpha) / kept

    def survival(x: float) -> float:
        if x <= low:
            return 1.0
        return max(0.0, 1 - (1 - math.pow(low / x, alpha)) / kept)

    return Density(density=density, survival=survival, largest=high)


def _lognormal_density(service: LognormalService) -> Density:
    variance = math.log1p(service.cv**2)
    sigma = math.sqrt(variance)
    mu = math.log(service.mean_us * _US) - variance / 2

    def density(x: float) -> float:
        if x <= 0:
            return 0.0
        z = (math.log(x) - mu) / sigma
        return math.exp(-z * z / 2) / (x * sigma * math.sqrt(2 * math.pi))

    def survival(x: float) -> float:
        if x <= 0:
            return 1.0
        return math.erfc((math.log(x) - mu) / (sigma * math.sqrt(2))) / 2

    return Density(
        density=density,
        survival=survival,
        largest=math.exp(mu + _DEVIATIONS * sigma),
    )
