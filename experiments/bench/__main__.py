"""`make bench`: run every comparison, print it, and write runs/bench.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.bench import handover, model, policies, produce
from experiments.bench.row import Row

SUITES: tuple[Callable[[], Iterator[Row]], ...] = (
    policies.rows,
    handover.rows,
    model.rows,
    produce.rows,
)


def main(out: Path = Path("runs/bench.json")) -> None:
    """Print one JSON line per comparison as it is made; write them all at the end."""
    rows = []
    for suite in SUITES:
        for row in suite():
            rows.append(row.as_json())
            print(json.dumps(rows[-1]), flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
