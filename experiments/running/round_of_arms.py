"""A round of episodes: which arm is dealt next, and which episodes count.

A round counts when it has an episode of every arm on the machine in quiet: the brokers'
CPU is as fast as it is then (`experiments.running.speed.QuietSpeed`), and the one of
the generator was there. What is missing is dealt again, in the
round's own order. Nothing but a fixed loop and a clock goes in, so neither what is
dealt again nor what counts depends on a latency or on which arm it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.running import speed
from experiments.running.speed import QuietSpeed
from experiments.worlds.episodes import Conditions


@dataclass(frozen=True, slots=True)
class _Dealt:
    """An episode: of which arm, the loop's times in it, and how long a CPU was away."""

    arm: str
    loop_ns: float
    slowest_ns: int
    away_ns: int


class RoundOfArms:
    """The episodes of one round so far.

    ``quiet`` is the machine of this round and of those before it; ``away_max_ns`` is
    for how long the generator may be without its CPU. ``tries`` is how often all arms
    could be dealt before the round is given up. Costs O(episodes) looks at what is
    quiet a step.
    """

    def __init__(
        self,
        arms: Sequence[str],
        *,
        quiet: QuietSpeed,
        away_max_ns: int,
        tries: int,
    ) -> None:
        self._arms = tuple(arms)
        self._quiet = quiet
        self._away_max_ns = away_max_ns
        self._deals_max = tries * len(self._arms)
        self._dealt: list[_Dealt] = []

    def next(self) -> str | None:
        """Return the arm to deal now; None if the round counts or is given up.

        A round is given up with an episode of every arm, whatever they are worth.
        """
        seen = {it.arm for it in self._dealt}
        never = [arm for arm in self._arms if arm not in seen]
        if len(self._dealt) + len(never) >= self._deals_max:
            return never[0] if never else None
        missing = self._missing()
        return missing[0] if missing else None

    def add(self, arm: str, met: Conditions) -> None:
        """Take the machine that an episode of ``arm`` met."""
        loop_ns = speed.loop_ns(met.probes_ns)
        dealt = _Dealt(arm, loop_ns, met.slowest_ns, met.away_ns)
        self._quiet.add(dealt.loop_ns)
        self._dealt.append(dealt)

    def counting(self) -> tuple[int, ...]:
        """Return which episodes count, by number; none of a round that is given up."""
        if self._missing():
            return ()
        latest = {self._dealt[at].arm: at for at in self._in_quiet()}
        return tuple(sorted(latest.values()))

    def fault(self, at: int) -> str:
        """Say why an episode that does not count does not."""
        return self._fault_of(self._dealt[at]) or (
            "machine unsteady: in other episodes of the round it was not in quiet"
        )

    def _missing(self) -> list[str]:
        """Return the arms without an episode that counts, from the last one dealt."""
        if not self._dealt:
            return list(self._arms)
        found = {self._dealt[at].arm for at in self._in_quiet()}
        after = self._arms.index(self._dealt[-1].arm) + 1
        cycle = self._arms[after:] + self._arms[:after]
        return [arm for arm in cycle if arm not in found]

    def _in_quiet(self) -> list[int]:
        return [at for at, it in enumerate(self._dealt) if not self._fault_of(it)]

    def _fault_of(self, dealt: _Dealt) -> str:
        if dealt.away_ns > self._away_max_ns:
            return (
                "machine unsteady: the generator was without its CPU for "
                f"{dealt.away_ns / 1e6:.2f} ms; up to "
                f"{self._away_max_ns / 1e6:.3g} ms counts"
            )
        return self._quiet.fault(dealt.loop_ns, dealt.slowest_ns)
