"""Files of a run with a cluster, and the attempts that were recorded there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from experiments.worlds.world import RunFiles


def run_files(directory: Path) -> RunFiles:
    """Return the files of a run that records attempts."""
    return RunFiles(
        requests=directory / "r.parquet",
        samples=directory / "s.parquet",
        attempts=directory / "a.parquet",
    )


def attempts_of(out: RunFiles) -> dict[str, Any]:
    """Return the integer columns of a run's attempts, -1 where a value is missing."""
    assert out.attempts is not None
    table = pq.read_table(out.attempts)
    return {
        name: table[name].fill_null(-1).to_numpy()
        for name in table.column_names
        if table.schema.field(name).type == "int64"
    }
