"""`make bench`: run every comparison, print it, and write runs/bench.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    beside,
    giving_way,
    group_loading,
    handover,
    many_partitions,
    model,
    policies,
    replicas,
    virtual,
)
from bench.row import BenchRow

SUITES: tuple[Callable[[], Iterator[BenchRow]], ...] = (
    policies.rows,
    handover.rows,
    giving_way.rows,
    model.rows,
    virtual.rows,
    beside.rows,
    group_loading.rows,
    many_partitions.rows,
    replicas.rows,
)
# Columns that hold the longest comparison and peer.
_WIDE = 160


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


def print_table(rows: Sequence[BenchRow]) -> None:
    """Print one line per comparison; a ratio above 1 means that we are better."""
    table = Table(title="Doorkeeper and others: medians of rounds taken in turn")
    for heading in ("comparison", "unit"):
        table.add_column(heading)
    for heading in ("ours", "theirs", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("peer")
    for row in rows:
        ours, theirs = f"{row.ours:,.4g}", f"{row.theirs:,.4g}"
        table.add_row(row.name, row.unit, ours, theirs, f"{row.ratio:.2f}", row.peer)
    console = Console()
    if not console.is_terminal:
        # In a file nothing has to be wrapped.
        console = Console(width=_WIDE)
    console.print(table)


if __name__ == "__main__":
    main()
