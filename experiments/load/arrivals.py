"""Arrival instants and service demands, drawn from a seed.

Open loop: the arrival of a request depends on the clock only, never on an answer
(Schroeder et al., NSDI 2006). Each process is a generator of non-decreasing integer
nanoseconds within ``[start_ns, stop_ns)``, and pure: the same ``random.Random`` state
gives the same instants.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from itertools import cycle

from experiments.design.arrival_processes import (
    Arrivals,
    Bursts,
    Constant,
    Mmpp,
    OnOff,
    Poisson,
    Recorded,
)
from experiments.design.workload import (
    ChoiceService,
    ConstantService,
    ExponentialService,
    LognormalService,
    PublishedService,
    RecordedService,
    Service,
)

SECOND_NS = 1_000_000_000
# Columns of a trace are 64 bits wide; no distribution of a config comes close.
_DEMAND_NS_MAX = 2**63 - 1


def instants(
    arrivals: Arrivals, rng: random.Random, start_ns: int, stop_ns: int
) -> Iterator[int]:
    """Yield the arrival instants of a process in ``[start_ns, stop_ns)``."""
    match arrivals:
        case Poisson():
            return _poisson(rng, arrivals.per_s, start_ns, stop_ns)
        case Constant():
            return _constant(rng, arrivals.per_s, start_ns, stop_ns)
        case Bursts():
            return _bursts(rng, arrivals, start_ns, stop_ns)
        case Mmpp():
            return _mmpp(rng, arrivals, start_ns, stop_ns)
        case OnOff():
            return _on_off(rng, arrivals, start_ns, stop_ns)
        case Recorded():
            raise ValueError("arrivals of a trace are read, not drawn")


def demands(service: Service, rng: random.Random) -> Callable[[], int]:
    """Return a function that draws the cost of one request, in nanoseconds (>= 1)."""
    draw_us = _draw_us(service, rng)
    return lambda: min(max(1, round(draw_us() * 1000)), _DEMAND_NS_MAX)


def _draw_us(service: Service, rng: random.Random) -> Callable[[], float]:
    match service:
        case ConstantService():
            return lambda: service.mean_us
        case ExponentialService():
            return lambda: rng.expovariate(1 / service.mean_us)
        case ChoiceService():
            return lambda: rng.choices(service.values_us, service.weights)[0]
        case LognormalService():
            variance = math.log1p(service.cv**2)
            mu = math.log(service.mean_us) - variance / 2
            return lambda: rng.lognormvariate(mu, math.sqrt(variance))
        case PublishedService():
            return _draw_us(service.choice(), rng)
        case RecordedService():
            raise ValueError("service times of a trace are read, not drawn")
        case _:
            # Inverse of the bounded Pareto's distribution function.
            low_us, alpha = service.low_us, service.alpha
            mass = math.expm1(-alpha * service.span)
            return lambda: low_us * math.exp(-math.log1p(rng.random() * mass) / alpha)


def _poisson(
    rng: random.Random, rate_per_s: float, start_ns: int, stop_ns: int
) -> Iterator[int]:
    if rate_per_s == 0:
        return
    per_ns = rate_per_s / SECOND_NS
    at = start_ns + rng.expovariate(per_ns)
    while at < stop_ns:
        yield int(at)
        at += rng.expovariate(per_ns)


def _constant(
    rng: random.Random, rate_per_s: float, start_ns: int, stop_ns: int
) -> Iterator[int]:
    if rate_per_s == 0:
        return
    gap_ns = SECOND_NS / rate_per_s
    first = start_ns + rng.random() * gap_ns
    for number in range(math.ceil((stop_ns - first) / gap_ns)):
        yield int(first + number * gap_ns)


def _bursts(
    rng: random.Random, bursts: Bursts, start_ns: int, stop_ns: int
) -> Iterator[int]:
    every_ns = round(bursts.every_s * SECOND_NS)
    on_ns = round(bursts.on_s * SECOND_NS)
    on = _constant if bursts.gaps == "even" else _poisson
    for begin in range(start_ns, stop_ns, every_ns):
        turn = min(begin + on_ns, stop_ns)
        end = min(begin + every_ns, stop_ns)
        yield from on(rng, bursts.per_s, begin, turn)
        yield from _poisson(rng, bursts.idle_rate_per_s, turn, end)


def _mmpp(rng: random.Random, mmpp: Mmpp, start_ns: int, stop_ns: int) -> Iterator[int]:
    """Draw the first state by its share of time, which makes the process stationary."""
    states = range(len(mmpp.dwell_s))
    first = rng.choices(states, mmpp.dwell_s)[0]
    begin = start_ns
    for state in cycle([*states[first:], *states[:first]]):
        if begin >= stop_ns:
            return
        dwell_ns = round(rng.expovariate(1 / mmpp.dwell_s[state]) * SECOND_NS)
        end = min(begin + dwell_ns, stop_ns)
        yield from _poisson(rng, mmpp.each_per_s[state], begin, end)
        begin = end


def _on_off(
    rng: random.Random, on_off: OnOff, start_ns: int, stop_ns: int
) -> Iterator[int]:
    """Merge the sources, which have separate generators."""
    source = Mmpp(
        kind="mmpp",
        rates_per_s=(on_off.per_s, 0.0),
        dwell_s=(on_off.on_s, on_off.off_s),
    )
    return heapq.merge(
        *(
            _mmpp(random.Random(rng.getrandbits(64)), source, start_ns, stop_ns)
            for _ in range(on_off.sources)
        )
    )
