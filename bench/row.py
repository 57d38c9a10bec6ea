"""One comparison: medians over rounds of this project's figures and a peer's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One line of ``runs/bench.json``; a ``ratio`` > 1 means that ``ours`` is better.

    ``ratio_low`` and ``ratio_high`` are an interval of the ratio, where there is one.
    """

    name: str
    unit: str
    ours: float
    peer: str
    theirs: float
    ratio: float
    ratio_low: float | None = None
    ratio_high: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row in the file's format, to four significant digits."""
        row = {key: value for key, value in asdict(self).items() if value is not None}
        for key in {"ours", "theirs", "ratio", "ratio_low", "ratio_high"} & row.keys():
            row[key] = float(f"{row[key]:.4g}")
        return row


def in_turn(
    name: str,
    unit: str,
    ours: Callable[[], float],
    peer: str,
    theirs: Callable[[], float],
    *,
    rounds: int = 5,
    more_is_better: bool = False,
) -> BenchRow:
    """Measure both alternately."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return paired(
        name,
        unit,
        [a for a, _ in pairs],
        peer,
        [b for _, b in pairs],
        more_is_better=more_is_better,
    )


def paired(
    name: str,
    unit: str,
    ours: Sequence[float],
    peer: str,
    theirs: Sequence[float],
    *,
    more_is_better: bool,
) -> BenchRow:
    """Compare figures of the same rounds; the ratio is the median of their ratios."""
    pairs = zip(ours, theirs, strict=True)
    ratios = [a / b if more_is_better else b / a for a, b in pairs]
    return BenchRow(
        name=name,
        unit=unit,
        ours=statistics.median(ours),
        peer=peer,
        theirs=statistics.median(theirs),
        ratio=statistics.median(ratios),
    )
