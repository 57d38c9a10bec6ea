"""The table of laws that schedulers were seen to break while they ran."""

from __future__ import annotations

from spark_analysis.judging.broken_laws import broken_laws
from spark_analysis.recordings.contract import Manifest
from spark_analysis.telling.tables.table import Column, Table, count, plain_number


def violations_table(manifest: Manifest) -> Table:
    """One row per arm and law that it broke, and in how many runs."""
    return Table(
        name="violations",
        caption="How often each law was seen broken, over all runs that are compared.",
        columns=(
            Column(name="arm", heading="arm"),
            Column(name="law", heading="law"),
            Column(name="times", heading="times", write=count),
            Column(name="runs", heading="in runs", write=plain_number),
        ),
        rows=tuple(
            (broken.arm, broken.law, broken.times, broken.runs)
            for broken in broken_laws(manifest)
        ),
    )
