"""The machine-speed gate: rounds in which the arms met different machines are repeated.

Before and after each episode a fixed loop is timed on the broker's CPU. An episode's
speed is the geometric mean of both; a round counts if its fastest and its slowest
episode differ by no more than a band. Nothing else has a say: what goes in are times of
the loop, so no latency can make a round count or not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

ProbesNs = Sequence[int]


def loop_ns(probes_ns: ProbesNs) -> float:
    """Return the time of the loop around an episode."""
    return math.exp(math.fsum(map(math.log, probes_ns)) / len(probes_ns))


def fault(probes_ns: Mapping[str, ProbesNs], band: float) -> str:
    """Say that the arms of a round met different machines, or say nothing.

    ``probes_ns`` are the times of the loop around each arm's episode.
    """
    times = {arm: loop_ns(probes) for arm, probes in probes_ns.items()}
    fastest = min(times, key=times.__getitem__)
    slowest = max(times, key=times.__getitem__)
    factor = times[slowest] / times[fastest]
    if factor <= band:
        return ""
    return (
        f"machine unsteady: a fixed loop took {factor:.2f} times as long around the "
        f"episode of {slowest} as around that of {fastest}; up to {band:g} counts"
    )
