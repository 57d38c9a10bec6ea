"""What a reader must know before believing a number; often nothing."""

from __future__ import annotations

from spark_analysis.comparison import Comparison
from spark_analysis.sentences import again_sentence, differs
from spark_analysis.statistics.sign_flip import smallest_p
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
    if again is not None and any(differs(cell) for cell in comparison.of_arm(again)):
        found.append(again_sentence(comparison))
    return tuple(found)
