"""The rows of a bench as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from experiments.bench.row import BenchRow

# Columns that hold the longest comparison and peer.
_WIDE = 160


def print_table(rows: Sequence[BenchRow]) -> None:
    """Print one line per comparison; a ratio above 1 means that we are better."""
    table = Table(title="Doorkeeper beside others: medians of rounds taken in turn")
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
