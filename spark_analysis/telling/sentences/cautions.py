"""What a reader must know before believing a number; often nothing."""

from __future__ import annotations

from typing import Final

from spark_analysis.judging.broken_laws import broken_laws
from spark_analysis.judging.comparison import Comparison
from spark_analysis.recordings.contract import Manifest
from spark_analysis.statistics.sign_flip import smallest_p
from spark_analysis.telling.sentences.machine_sentences import machine_cautions
from spark_analysis.telling.sentences.numbers import (
    agreeing,
    counted,
    listed,
    p_value,
)
from spark_analysis.telling.sentences.silences import silences
from spark_analysis.telling.sentences.verdict_sentences import (
    again_sentence,
    differs,
    replays_apart,
)

# Of a broker's CPU, below which what is nobody's may decide a result.
BILLED_SHARE_LEAST: Final = 0.9


def cautions(comparison: Comparison) -> tuple[str, ...]:
    """Return one sentence per reason for caution."""
    manifest = comparison.manifest
    found, done = [], len(manifest.blocks)
    if not manifest.finished:
        found.append(
            f"This experiment is unfinished: {done} of "
            f"{counted(manifest.blocks_planned, 'block')} "
            f"{agreeing(done, 'is', 'are')} complete."
        )
    for arm in manifest.arms_missing:
        found.append(f"{arm} has no valid run and is missing from every comparison.")
    dropped = sorted(
        {run.block for run in manifest.runs if run.valid} - set(manifest.blocks)
    )
    if dropped:
        blocks = agreeing(len(dropped), "block", "blocks")
        found.append(
            f"Left out, for some arm has no valid run there: {blocks} "
            f"{listed(map(str, dropped))}."
        )
    few = few_blocks_sentence(manifest)
    if few:
        found.append(few)
    found += silences(comparison)
    again = comparison.again
    broken = manifest.deterministic and replays_apart(comparison)
    alarms = [c for c in comparison.of_arm(again or "") if differs(c)]
    if broken or alarms:
        found.append(again_sentence(comparison))
    broken_laws = violations_sentence(manifest)
    if broken_laws:
        found.append(broken_laws)
    unbilled = unbilled_sentence(manifest)
    if unbilled:
        found.append(unbilled)
    found += machine_cautions(comparison)
    return tuple(found)


def few_blocks_sentence(manifest: Manifest) -> str:
    """Return why nothing can be decided by so few blocks, or an empty string."""
    floor = smallest_p(len(manifest.blocks))
    if floor <= manifest.options.alpha:
        return ""
    unit = "block" if manifest.episodes is None else "round"
    there = counted(len(manifest.blocks), f"complete {unit}")
    none = "every verdict is inconclusive, and none means sameness"
    if len(manifest.blocks) == 1:
        return f"With {there} nothing can be tested, and no interval has ends: {none}."
    return f"With {there} no data could give a p below {p_value(floor)}: {none}."


def unbilled_sentence(manifest: Manifest) -> str:
    """Return what a reader must know of CPU that nobody was billed, or nothing.

    Below the bound a share of the CPU decides results that no policy could decide.
    """
    shares: dict[str, float] = {}
    for run in manifest.runs_compared:
        if run.billed_share is not None and run.billed_share < BILLED_SHARE_LEAST:
            shares[run.arm] = min(run.billed_share, shares.get(run.arm, 1.0))
    arms = [f"{arm} ({share:.2f})" for arm, share in sorted(shares.items())]
    if not arms:
        return ""
    return (
        f"Less than {BILLED_SHARE_LEAST} of the broker's CPU was billed to requests or "
        f"to housekeeping; the least share of a run was that of {listed(arms)}."
    )


def violations_sentence(manifest: Manifest) -> str:
    """Return what a reader must know of broken laws, or an empty string."""
    counted: dict[str, list[str]] = {}
    for broken in broken_laws(manifest):
        law = f"{broken.law.replace('_', ' ')} {broken.times}"
        counted.setdefault(broken.arm, []).append(law)
    arms = [f"{arm} ({', '.join(laws)})" for arm, laws in counted.items()]
    return f"Laws were broken at run time, under {listed(arms)}." if arms else ""
