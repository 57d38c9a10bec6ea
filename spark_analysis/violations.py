"""Laws that a scheduler was seen to break while it ran, as its broker counted them.

A law that is broken on purpose (strict priority starves) is no fault of the recording;
it is what the reader must know when the latencies look good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spark_analysis.contract import Manifest, Run
from spark_analysis.table import Column, Table, count, plain_number
from spark_analysis.wording import listed


def violations(manifest: Manifest) -> dict[str, Counter[str]]:
    """Return the violations of each arm by law, of all runs that are compared."""
    found: dict[str, Counter[str]] = {}
    for run in manifest.runs_compared:
        found.setdefault(run.arm, Counter()).update(_broken(run))
    return {arm: laws for arm, laws in found.items() if laws}


def violations_sentence(manifest: Manifest) -> str:
    """Return what a reader must know of broken laws, or an empty string."""
    told = []
    for arm, laws in violations(manifest).items():
        counted = [f"{law.replace('_', ' ')} {times}" for law, times in laws.items()]
        told.append(f"{arm} ({', '.join(counted)})")
    return f"Laws were broken at run time, under {listed(told)}." if told else ""


def violations_table(manifest: Manifest) -> Table:
    """One row per arm and law that it broke, and in how many runs."""
    runs: dict[tuple[str, str], list[int]] = {}
    for run in manifest.runs_compared:
        for law, times in _broken(run).items():
            runs.setdefault((run.arm, law), []).append(times)
    rows: Sequence[tuple[str, str, int, int]] = [
        (arm, law, sum(times), len(times)) for (arm, law), times in runs.items()
    ]
    return Table(
        name="violations",
        caption="How often each law was seen broken, over all runs that are compared.",
        columns=(
            Column(name="arm", heading="arm"),
            Column(name="law", heading="law"),
            Column(name="times", heading="times", write=count),
            Column(name="runs", heading="in runs", write=plain_number),
        ),
        rows=tuple(rows),
    )


def _broken(run: Run) -> dict[str, int]:
    return {law: times for law, times in run.violations.items() if times}
