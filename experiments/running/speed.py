"""The machine-speed gate: where the arms met different machines, all are repeated.

Before and after each episode, and each long run, a fixed loop is timed on the broker's
CPU; its speed is the geometric mean of both. A round of episodes, or a block of long
runs, counts if its fastest and its slowest differ by no more than a band. Nothing else
has a say: what goes in are times of the loop, so no latency can make a round count or
not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

ProbesNs = Sequence[int]


def loop_ns(probes_ns: ProbesNs) -> float:
    """Return the time of the loop around an episode or a run."""
    return math.exp(math.fsum(map(math.log, probes_ns)) / len(probes_ns))


def fault(probes_ns: Mapping[str, ProbesNs], band: float, unit: str = "episode") -> str:
    """Say that the arms of a round or block met different machines, or say nothing.

    ``probes_ns`` are the times of the loop around each arm's ``unit``.
    """
    times = {arm: loop_ns(probes) for arm, probes in probes_ns.items()}
    fastest = min(times, key=times.__getitem__)
    slowest = max(times, key=times.__getitem__)
    factor = times[slowest] / times[fastest]
    if factor <= band:
        return ""
    return (
        f"machine unsteady: a fixed loop took {factor:.2f} times as long around the "
        f"{unit} of {slowest} as around that of {fastest}; up to {band:g} counts"
    )
