"""`make bench`: run every comparison, print it, and write runs/bench.json.

``python -m bench SUITE...`` runs some suites only, and writes runs/bench-SUITE.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    beside,
    console,
    giving_way,
    group_loading,
    handover,
    many_partitions,
    model,
    policies,
    replicas,
    security,
    virtual,
)
from bench.row import BenchRow

SUITES: Mapping[str, Callable[[], Iterator[BenchRow]]] = {
    "policies": policies.rows,
    "handover": handover.rows,
    "giving_way": giving_way.rows,
    "model": model.rows,
    "virtual": virtual.rows,
    "beside": beside.rows,
    "security": security.rows,
    "group_loading": group_loading.rows,
    "many_partitions": many_partitions.rows,
    "replicas": replicas.rows,
    "console": console.rows,
}
# Columns that hold the longest comparison and peer.
_WIDE = 160


def main(names: Sequence[str] = (), directory: Path = Path("runs")) -> None:
    """Print one JSON line per comparison as it ends; then write a file and a table."""
    unknown = set(names).difference(SUITES)
    if unknown:
        sys.exit(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    rows = []
    for name in names or SUITES:
        for row in SUITES[name]():
            rows.append(row)
            print(json.dumps(row.as_json()), flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    out = directory / f"{'-'.join(['bench', *names])}.json"
    content = {"rows": [row.as_json() for row in rows]}
    out.write_text(json.dumps(content, indent=1) + "\n")
    print_table(rows)


def print_table(rows: Sequence[BenchRow]) -> None:
    """Print one line per comparison; a ratio above 1 means that this side is better."""
    table = Table(title="Doorkeeper and others: medians of rounds taken in turn")
    for heading in ("comparison", "unit"):
        table.add_column(heading)
    for heading in ("ours", "theirs", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("peer")
    for row in rows:
        ours, theirs = f"{row.ours:,.4g}", f"{row.theirs:,.4g}"
        ratio = f"{row.ratio:.2f}"
        if row.ratio_low is not None and row.ratio_high is not None:
            ratio += f" ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
        table.add_row(row.name, row.unit, ours, theirs, ratio, row.peer)
    terminal = Console()
    if not terminal.is_terminal:
        # Text in a file need not be wrapped.
        terminal = Console(width=_WIDE)
    terminal.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
