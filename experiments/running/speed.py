"""The machine-speed gate: where the arms met different machines, all are repeated.

In each run a fixed loop is timed all along on the broker's CPU, in what of it is free:
a machine that is slow for tens of milliseconds was not so before or after. A round of
episodes, or a block of long runs, counts if its fastest and its slowest
differ by no more than a band; episodes are many enough to ask, too, that the machine be
in quiet. Nothing else has a say: what goes in are times of the loop, so no latency can
make a round count or not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

ProbesNs = Sequence[int]

# About two minutes of episodes: a machine that is another for a minute is waited for.
REMEMBERED: Final = 512


def loop_ns(probes_ns: ProbesNs) -> float:
    """Return the time of the loop in a run: the geometric mean, if of several."""
    return math.exp(math.fsum(map(math.log, probes_ns)) / len(probes_ns))


def fault(probes_ns: Mapping[str, ProbesNs], band: float) -> str:
    """Say that the arms of a block met different machines, or say nothing.

    ``probes_ns`` are the times of the loop in each arm's run.
    """
    times = {arm: loop_ns(probes) for arm, probes in probes_ns.items()}
    fastest = min(times, key=times.__getitem__)
    slowest = max(times, key=times.__getitem__)
    factor = times[slowest] / times[fastest]
    if factor <= band:
        return ""
    return (
        f"machine unsteady: a fixed loop took {factor:.2f} times as long in the run "
        f"of {slowest} as in that of {fastest}; up to {band:g} counts"
    )


class QuietSpeed:
    """The machine in quiet: as fast as in the fastest quarter of the latest episodes.

    What disturbs a machine makes it slower, never faster, and how often it does so
    changes from minute to minute; how fast it is without does not. So ``loop_ns`` is
    the lower quartile of the loop's times in the latest `REMEMBERED` episodes; as long
    as there are fewer, ``calibrated_ns``, the time in quiet when costs were measured,
    stands for those before, if it is known. What a load was made for is what counts,
    until the machine has become another for good. Two episodes that are both in quiet
    differ by no more than ``band``; and in none was the machine, for some milliseconds,
    slower than in quiet by more than ``slowest_band``, if that is asked. Taking one
    costs O(remembered log remembered).
    """

    def __init__(
        self,
        band: float,
        calibrated_ns: float | None = None,
        slowest_band: float | None = None,
    ) -> None:
        self._half_band = math.sqrt(band)
        self._slowest_band = slowest_band or math.inf
        known = [] if calibrated_ns is None else [calibrated_ns] * REMEMBERED
        self._lately = deque(known, maxlen=REMEMBERED)
        self._loop_ns = calibrated_ns

    @property
    def loop_ns(self) -> float:
        """The loop's time in quiet."""
        assert self._loop_ns is not None, "no episode, and no calibration"
        return self._loop_ns

    def add(self, loop_ns: float) -> None:
        """Take the loop's time in an episode."""
        self._lately.append(loop_ns)
        self._loop_ns = sorted(self._lately)[(len(self._lately) - 1) // 4]

    def fault(self, loop_ns: float, slowest_ns: float) -> str:
        """Say that an episode met another machine, or say nothing.

        By the loop's time in it, and what it took at its slowest.
        """
        factor, slowest = loop_ns / self.loop_ns, slowest_ns / self.loop_ns
        if not 1 / self._half_band <= factor <= self._half_band:
            return (
                f"machine unsteady: a fixed loop took {factor:.2f} times as long in "
                f"the episode as in quiet; up to a factor {self._half_band:.3g} counts"
            )
        if slowest > self._slowest_band:
            return (
                f"machine unsteady: a fixed loop took {slowest:.2f} times as long for "
                "a part of the episode as in quiet; up to a factor "
                f"{self._slowest_band:.3g} counts"
            )
        return ""
