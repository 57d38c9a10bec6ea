"""Check of the paper's claims: repeated ratios against the stated ranges.

``python -m spark_analysis.claims paper/claims.toml RUNS`` reads the results of
``RUNS/EXPERIMENT/report/results.json``. The status is 1 if a claim of the small tier
is outside its range or was not measured.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.paper import read_results

_TIER: Final = "small"


def check(claims: Path, runs: Path) -> Iterator[tuple[bool, str]]:
    """Yield for each claim of the small tier whether it holds, and a line about it.

    :raises RecordingError: if results are missing or damaged.
    """
    for claim in tomllib.loads(claims.read_text(encoding="utf-8"))["claim"]:
        if claim["tier"] == _TIER:
            yield _checked(claim, runs)


def _checked(claim: dict[str, Any], runs: Path) -> tuple[bool, str]:
    name = claim["experiment"]
    summary = Summary(read_results(runs / name / "report" / "results.json"))
    row = summary.row(claim["world"], claim["class"], claim["arm"])
    ratio = row["ratio"] if row else None
    low, high = claim["range"]
    holds = ratio is not None and low <= ratio <= high
    measured = "not measured" if ratio is None else f"{ratio:.3f}"
    where = f"{name} ({claim['world']}), {claim['class']} under {claim['arm']}"
    word = "holds" if holds else "FAILS"
    return holds, f"{word}: {claim['text']} {where}: {measured} in {low} to {high}"


def main() -> int:
    """Print the claims; return 1 if one fails."""
    claims, runs = map(Path, sys.argv[1:])
    try:
        checked = list(check(claims, runs))
    except RecordingError as error:
        print(error, file=sys.stderr)
        return 1
    for _, line in checked:
        print(line)
    return 0 if all(holds for holds, _ in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
