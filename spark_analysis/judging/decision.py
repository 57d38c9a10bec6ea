"""The one decision tree: is a ratio below 1, above it, 1 within the margin, or open?

The order of the questions matters. With so few blocks that no data could have given a
small p, nothing is decided. Sameness within the margin is asked before difference: a
difference that is real but smaller than what was declared to matter is no news. A
difference needs the test and the interval to agree. What is left is undecided, which is
not the same as equal. Verdicts on arms, winners of pairs and effects of factors are all
this decision, put in words of their own.
"""

from __future__ import annotations

from typing import Literal

from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.sign_flip import smallest_p

Decision = Literal["lower", "higher", "same", "undecided"]


def decide(
    ratio: Estimate, *, blocks: int, p: float, p_same: float, alpha: float
) -> Decision:
    """Return what is known of a ratio of two arms over ``blocks`` paired blocks.

    ``p`` belongs to "the arms do not differ", ``p_same`` to "they differ by more than
    the margin", both adjusted for whatever was asked beside them; 1 where the question
    is not asked.
    """
    if smallest_p(blocks) > alpha:
        return "undecided"
    if p_same < alpha:
        return "same"
    if p >= alpha or ratio.low <= 1 <= ratio.high:
        return "undecided"
    return "lower" if ratio.high < 1 else "higher"
