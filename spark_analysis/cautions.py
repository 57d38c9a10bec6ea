"""What a reader must know before believing a number; often nothing."""

from __future__ import annotations

from spark_analysis.comparison import Comparison
from spark_analysis.sentences import again_sentence, differs, replays_apart
from spark_analysis.statistics.sign_flip import smallest_p
from spark_analysis.violations import violations_sentence
from spark_analysis.wording import p_value


def cautions(comparison: Comparison) -> tuple[str, ...]:
    """Return one sentence per reason for caution."""
    manifest = comparison.manifest
    found = []
    if not manifest.finished:
        found.append(
            f"This experiment is unfinished: {len(manifest.blocks)} of "
            f"{manifest.blocks_planned} blocks are complete."
        )
    for arm in manifest.arms_missing:
        found.append(f"{arm} has no valid run and is missing from every comparison.")
    dropped = sorted(
        {run.block for run in manifest.runs if run.valid} - set(manifest.blocks)
    )
    if dropped:
        blocks = ", ".join(str(block) for block in dropped)
        found.append(f"Left out, for some arm has no valid run there: block {blocks}.")
    floor = smallest_p(len(manifest.blocks))
    if floor > manifest.options.alpha:
        found.append(
            f"With {len(manifest.blocks)} complete blocks no data could give a p below "
            f"{p_value(floor)}: every verdict is inconclusive, and none means sameness."
        )
    again = comparison.again
    broken = manifest.deterministic and replays_apart(comparison)
    alarms = [c for c in comparison.of_arm(again or "") if differs(c)]
    if broken or alarms:
        found.append(again_sentence(comparison))
    broken_laws = violations_sentence(manifest)
    if broken_laws:
        found.append(broken_laws)
    return tuple(found)
