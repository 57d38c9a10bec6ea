"""A round of episodes: which arm is dealt next, and which episodes count.

A round counts when it has an episode of every arm and the machine was the same, within
the band of the speed gate, around all of them. Where it was not, only what is missing
is dealt again: the round follows the machine as it is now, and asks for the arms that
have no episode on such a machine, in the round's own order. Nothing but times of a
fixed loop goes in, so neither what is dealt again nor what counts depends on a latency
or on which arm it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.running import speed
from experiments.running.speed import ProbesNs


@dataclass(frozen=True, slots=True)
class _Dealt:
    """An episode: of which arm, and the loop's times around it."""

    arm: str
    probes_ns: ProbesNs
    loop_ns: float


class RoundOfArms:
    """The episodes of one round so far.

    ``band`` is the factor between the slowest and the fastest machine that count
    together; ``tries`` is how often all arms could be dealt before the round is given
    up. Costs O(episodes x (episodes + arms)) a step.
    """

    def __init__(self, arms: Sequence[str], *, band: float, tries: int) -> None:
        self._arms = tuple(arms)
        self._band = band
        self._deals_max = tries * len(self._arms)
        self._dealt: list[_Dealt] = []

    def next(self) -> str | None:
        """Return the arm to deal now; None if the round counts or is given up.

        A round is given up with an episode of every arm, whatever they are worth.
        """
        never = [arm for arm in self._arms if arm not in self._seen()]
        if len(self._dealt) + len(never) >= self._deals_max:
            return never[0] if never else None
        missing = self._missing()
        return missing[0] if missing else None

    def add(self, arm: str, probes_ns: ProbesNs) -> None:
        """Take the loop's times around an episode of ``arm``."""
        self._dealt.append(_Dealt(arm, probes_ns, speed.loop_ns(probes_ns)))

    def counting(self) -> tuple[int, ...]:
        """Return which episodes count, by number; none of a round that is given up."""
        if self._missing():
            return ()
        latest = {self._dealt[at].arm: at for at in self._on_this_machine()}
        return tuple(sorted(latest.values()))

    def fault(self) -> str:
        """Say how far the machine moved in this round, or nothing if it stood."""
        if not self._dealt:
            return ""
        ordered = sorted(self._dealt, key=lambda it: it.loop_ns)
        # Names tell an arm's episodes apart, for here they may be two of one arm.
        ends = {"fastest": ordered[0], "slowest": ordered[-1]}
        return speed.fault(
            {f"{it.arm} ({end})": it.probes_ns for end, it in ends.items()}, self._band
        )

    def _seen(self) -> set[str]:
        return {it.arm for it in self._dealt}

    def _missing(self) -> list[str]:
        """Return the arms without an episode on this machine, from the last one on."""
        if not self._dealt:
            return list(self._arms)
        found = {self._dealt[at].arm for at in self._on_this_machine()}
        after = self._arms.index(self._dealt[-1].arm) + 1
        cycle = self._arms[after:] + self._arms[:after]
        return [arm for arm in cycle if arm not in found]

    def _on_this_machine(self) -> list[int]:
        """Return the episodes that go with the last one: of most arms, then faster."""
        last = self._dealt[-1].loop_ns
        best: list[int] = []
        for start in sorted({it.loop_ns for it in self._dealt}):
            if not start <= last <= start * self._band:
                continue
            inside = [
                at
                for at, it in enumerate(self._dealt)
                if start <= it.loop_ns <= start * self._band
            ]
            if self._arms_of(inside) > self._arms_of(best):
                best = inside
        return best

    def _arms_of(self, episodes: Sequence[int]) -> int:
        return len({self._dealt[at].arm for at in episodes})
