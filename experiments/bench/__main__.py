"""`make bench`: run every comparison, print it, and write runs/bench.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.bench import (
    beside,
    giving_way,
    handover,
    many_partitions,
    model,
    policies,
    replicas,
    virtual,
)
from experiments.bench.row import BenchRow
from experiments.bench.table import print_table

SUITES: tuple[Callable[[], Iterator[BenchRow]], ...] = (
    policies.rows,
    handover.rows,
    giving_way.rows,
    model.rows,
    virtual.rows,
    beside.rows,
    many_partitions.rows,
    replicas.rows,
)


def main(out: Path = Path("runs/bench.json")) -> None:
    """Print one JSON line per comparison as it is made; then a file and a table."""
    rows = []
    for suite in SUITES:
        for row in suite():
            rows.append(row)
            print(json.dumps(row.as_json()), flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    content = {"rows": [row.as_json() for row in rows]}
    out.write_text(json.dumps(content, indent=1) + "\n")
    print_table(rows)


if __name__ == "__main__":
    main()
