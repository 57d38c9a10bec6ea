"""Rate of false verdicts in an experiment whose arms are all the same baseline.

``python -m spark_analysis.false_verdicts report/results.json`` counts the rows that
compare an arm with the baseline, and the false ones among them: better or worse. The
interval is that of Clopper and Pearson (1934). It assumes that rows of one experiment
are independent, which they are not, so it is too narrow. The A/A arm defines the noise
floor and has no verdict.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scipy.stats import binomtest

FALSE: Final = ("better", "worse")
TRUE: Final = ("equivalent", "not significant")


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseVerdicts:
    """Compared rows of a table, false verdicts among them, and rows not compared."""

    compared: int
    false: int
    refused: int

    def sentence(self) -> str:
        """Return the rate with its interval as one line."""
        if not self.compared:
            return f"no row was compared ({self.refused} refused)"
        found = binomtest(self.false, self.compared).proportion_ci(method="exact")
        return (
            f"{self.false} of {self.compared} verdicts are false "
            f"({self.false / self.compared:.1%}, 95 % CI {found.low:.1%}-"
            f"{found.high:.1%}); {self.refused} rows refused"
        )


def count(rows: Sequence[Mapping[str, Any]]) -> FalseVerdicts:
    """Count the verdicts of the rows of ``results.json``."""
    words = [str(row["verdict"]) for row in rows]
    false = sum(word in FALSE for word in words)
    return FalseVerdicts(
        compared=false + sum(word in TRUE for word in words),
        false=false,
        refused=sum(word.startswith("refused") for word in words),
    )


def main() -> None:
    """Print the rate of false verdicts of a results file, in total and by metric."""
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["rows"]
    for metric in dict.fromkeys(row["metric"] for row in rows):
        of_metric = count([row for row in rows if row["metric"] == metric])
        print(f"{metric}: {of_metric.sentence()}")
    print(f"all: {count(rows).sentence()}")


if __name__ == "__main__":
    main()
