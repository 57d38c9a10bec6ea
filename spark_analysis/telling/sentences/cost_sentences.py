"""What the cost of identical requests says of the machine's speed, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from spark_analysis.judging.comparison import Comparison
from spark_analysis.recordings.paired_cost import PairedCost
from spark_analysis.telling.sentences.numbers import (
    agreeing,
    counted,
    listed,
    ratio,
    ratio_interval,
)


def cost_sentences(comparison: Comparison) -> tuple[str, ...]:
    """Say how the cost of identical requests differed, or nothing where none is known.

    Whether by more than the band, where rounds have one.
    """
    found, base = comparison.paired_costs, comparison.manifest.baseline
    if not found:
        return ()
    each = listed(
        f"{ratio(of.ratio.value)} ({ratio_interval(of.ratio)}) under {of.arm}"
        for of in found
    )
    pairs = sum(of.pairs for of in found)
    left_out = sum(of.left_out for of in found)
    said = (
        "A second witness is what the handlers of identical requests used: relative to "
        f"{base} it was {each}, over {counted(pairs, 'pair')}; {left_out} "
        f"{agreeing(left_out, 'was', 'were')} left out, because "
        "one side had no good answer or no recorded cost."
    )
    episodes = comparison.manifest.episodes
    if episodes is None:
        return (said,)
    return (said, _against_band(found, episodes.speed_band))


def _against_band(found: Sequence[PairedCost], band: float) -> str:
    """Say which arms differ by more than a factor, and in how many rounds some did."""
    beyond = [of.arm for of in found if of.ratio.low > band or of.ratio.high < 1 / band]
    within = [
        of.arm for of in found if 1 / band <= of.ratio.low and of.ratio.high <= band
    ]
    others = [of.arm for of in found if of.arm not in (*beyond, *within)]
    parts = []
    if beyond:
        parts.append(f"{listed(beyond)} differed by more than a factor {band:g}")
    if others:
        parts.append(
            f"whether {listed(others)} differed by more than a factor {band:g} is not "
            "decided"
        )
    if not parts:
        parts.append(f"no arm differed by more than a factor {band:g}")
    elif within:
        parts.append(f"{listed(within)} did not")
    rounds = frozenset[int]().union(*(of.ratios for of in found))
    strayed = frozenset[int]().union(*(of.beyond(band) for of in found))
    return (
        f"By it, {', '.join(parts)}. In {len(strayed)} of "
        f"{counted(len(rounds), 'round')} some arm's cost did; no round is left out "
        "for it, for the loop alone decides."
    )
