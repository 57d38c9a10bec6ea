"""The mean wait of each stream of requests, by the closed form of the plane's policy.

Waiting is all time in the system except service, with or without preemption. Every
function returns one wait per stream in seconds, None if no form is known, or raises
`NoClosedForm` with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from experiments.design.workload import ExponentialService
from experiments.theory.mg1 import MG1
from experiments.theory.mmc import MMc
from experiments.theory.services import Density, density, segments_square
from experiments.theory.sizes import Sizes
from experiments.theory.system import NoClosedForm, Plane, Stream

Waits = list[float | None]

# Fraction of the mean service below which a quantum or a segment is negligible.
_FINE = 20


def waits(plane: Plane) -> Waits:
    """Return the mean wait of every stream.

    :raises NoClosedForm: if the policy has no form, or none for this plane.
    """
    if plane.requeues and plane.policy not in ("fifo", "priority"):
        raise NoClosedForm("a handler back from a device waits for a seat again")
    form = FORMS.get(plane.policy)
    if form is None:
        raise NoClosedForm(f"{plane.policy} has no closed form of its mean waits")
    return form(plane)


def common_mean(plane: Plane) -> float | None:
    """Return the mean service if it is exponential and equal for all, else None."""
    means = {stream.moments.mean for stream in plane.streams}
    plain = all(isinstance(it.service, ExponentialService) for it in plane.streams)
    return means.pop() if plain and len(means) == 1 else None


class Levels(NamedTuple):
    """The streams of each level, most urgent first, and the queue of these levels."""

    streams: list[list[Stream]]
    queue: MG1


def by_level(plane: Plane) -> Levels:
    """Return a plane with one server as M/G/1 by level."""
    numbers = sorted({stream.level for stream in plane.streams})
    levels = [[it for it in plane.streams if it.level == n] for n in numbers]
    rates = [sum(it.rate for it in level) for level in levels]
    queue = MG1(
        rates=tuple(rates),
        means=tuple(
            sum(it.rate * it.moments.mean for it in level) / rate
            for level, rate in zip(levels, rates, strict=True)
        ),
        squares=tuple(
            sum(it.rate * it.moments.square for it in level) / rate
            for level, rate in zip(levels, rates, strict=True)
        ),
    )
    return Levels(levels, queue)


def _several(plane: Plane) -> MMc:
    """Return the plane as M/M/c by level."""
    mean = common_mean(plane)
    if mean is None:
        raise NoClosedForm("several servers, and services are not all alike")
    numbers = sorted({stream.level for stream in plane.streams})
    rates = (
        sum(it.rate for it in plane.streams if it.level == number) for number in numbers
    )
    return MMc(servers=plane.servers, rates=tuple(rates), mean=mean)


def _to_streams(plane: Plane, of_level: Sequence[float | None]) -> Waits:
    numbers = sorted({stream.level for stream in plane.streams})
    found = dict(zip(numbers, of_level, strict=True))
    return [found[stream.level] for stream in plane.streams]


def _fifo(plane: Plane) -> Waits:
    queue = by_level(plane).queue if plane.servers == 1 else _several(plane)
    return [queue.fifo()] * len(plane.streams)


def _nonpreemptive(plane: Plane) -> Waits:
    if plane.servers == 1:
        return _to_streams(plane, by_level(plane).queue.nonpreemptive())
    return _to_streams(plane, _several(plane).nonpreemptive())


def _priority(plane: Plane) -> Waits:
    """Return preemptive-resume's form, or its form with preemption points."""
    if plane.segment_s == 0:
        return _preemptive(plane)
    if plane.segment_s == math.inf:
        return _nonpreemptive(plane)
    if plane.servers > 1:
        shortest = min(stream.moments.mean for stream in plane.streams)
        if plane.segment_s is None or plane.segment_s * _FINE > shortest:
            raise NoClosedForm("several servers, and preemption only at points")
        return _preemptive(plane)
    first = min(stream.level for stream in plane.streams)
    lower = [stream for stream in plane.streams if stream.level > first]
    if plane.segment_s is None and all(stream.units == 1 for stream in lower):
        return _nonpreemptive(plane)
    return _at_points(plane)


def _preemptive(plane: Plane) -> Waits:
    if plane.servers > 1:
        several = _several(plane)
        sojourns = several.preemptive()
        return _to_streams(plane, [sojourn - several.mean for sojourn in sojourns])
    levels, queue = by_level(plane)
    free, found = 1.0, {}
    for streams, load, mean, sojourn in zip(
        levels, queue.loads, queue.means, queue.preemptive(), strict=True
    ):
        queued = sojourn - mean / free
        for stream in streams:
            # Urgent requests that arrive during a service extend it.
            found[id(stream)] = queued + stream.moments.mean * (1 / free - 1)
        free -= load
    return [found[id(stream)] for stream in plane.streams]


def _at_points(plane: Plane) -> Waits:
    """Return the first level's wait with preemption only between segments."""
    levels, queue = by_level(plane)
    if plane.segment_s is None and plane.quantum_s > min(
        it.moments.mean / it.units for it in plane.streams
    ):
        raise NoClosedForm("arrivals are noticed once a quantum, longer than a slice")
    squares = []
    for level in levels[1:]:
        rate = sum(it.rate for it in level)
        total = sum(it.rate * _segments(plane, it) for it in level)
        squares.append(total / rate)
    return _to_streams(plane, [queue.checkpointed(squares), *[None] * len(squares)])


def _segments(plane: Plane, stream: Stream) -> float:
    if plane.segment_s is None:
        return stream.moments.square / stream.units
    square = (
        segments_square(stream.service, plane.segment_s) if stream.service else None
    )
    if square is None:
        raise NoClosedForm("segments are known of exponential and constant service")
    return square


def _ageing(plane: Plane) -> Waits:
    if plane.servers > 1:
        raise NoClosedForm("several servers")
    if plane.segment_s is None:
        raise NoClosedForm("ages count from when a request is read, after a slice")
    numbers = sorted({stream.level for stream in plane.streams})
    slopes = [plane.ratio**-number for number in numbers]
    return _to_streams(plane, by_level(plane).queue.ageing(slopes))


def _by_size(name: str) -> Callable[[Plane], Waits]:
    """Return the form of an order by size, integrated over each stream's sizes."""

    def form(plane: Plane) -> Waits:
        if plane.servers > 1:
            raise NoClosedForm("several servers")
        if name == "las":
            _needs_fine_quantum(plane)
        elif not plane.true_sizes:
            raise NoClosedForm("sizes are learned, not known")
        elif name != "sjf":
            _needs_points_anywhere(plane)
        sizes, parts = _mixture(plane)
        of_size: Callable[[float], float] = getattr(sizes, name)
        return [
            sizes.mean_over_sizes(of_size, part.density) - stream.moments.mean
            for stream, part in zip(plane.streams, parts, strict=True)
        ]

    return form


def _processor_sharing(plane: Plane) -> Waits:
    if plane.servers > 1:
        raise NoClosedForm("several servers")
    _needs_fine_quantum(plane)
    return [it.moments.mean * (1 / (1 - plane.load) - 1) for it in plane.streams]


def _needs_points_anywhere(plane: Plane) -> None:
    if plane.segment_s != 0:
        raise NoClosedForm("preemption only at points")


def _needs_fine_quantum(plane: Plane) -> None:
    _needs_points_anywhere(plane)
    shortest = min(stream.moments.mean for stream in plane.streams)
    if plane.quantum_s * _FINE > shortest:
        raise NoClosedForm(f"the quantum exceeds a {_FINE}th of the mean service")


def _mixture(plane: Plane) -> tuple[Sizes, list[Density]]:
    parts = []
    for stream in plane.streams:
        part = density(stream.service) if stream.service else None
        if part is None:
            raise NoClosedForm("sizes have no density")
        parts.append(part)
    total = sum(stream.rate for stream in plane.streams)
    shares = [stream.rate / total for stream in plane.streams]
    pairs = list(zip(shares, parts, strict=True))
    sizes = Sizes(
        rate=total,
        density=lambda x: math.fsum(share * part.density(x) for share, part in pairs),
        survival=lambda x: math.fsum(share * part.survival(x) for share, part in pairs),
        largest=max(part.largest for part in parts),
    )
    return sizes, parts


FORMS: Mapping[str, Callable[[Plane], Waits]] = MappingProxyType(
    {
        "fifo": _fifo,
        "np-priority": _nonpreemptive,
        "priority": _priority,
        "ageing": _ageing,
        "spt": _by_size("sjf"),
        "psjf": _by_size("psjf"),
        "srpt": _by_size("srpt"),
        "ps": _processor_sharing,
        "las": _by_size("las"),
    }
)
