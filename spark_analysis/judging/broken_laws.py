"""Laws that a scheduler broke during a run, as counted by its broker.

Some policies break a law by design (strict priority starves), which is no fault of the
recording. The report lists the violations next to the latencies.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_analysis.recordings.contract import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLaw:
    """Number of violations of a law by an arm, and number of its compared runs."""

    arm: str
    law: str
    times: int
    runs: int


def broken_laws(manifest: Manifest) -> tuple[BrokenLaw, ...]:
    """Return one entry per arm and law that it broke in a compared run."""
    found: dict[tuple[str, str], list[int]] = {}
    for run in manifest.runs_compared:
        for law, times in run.violations.items():
            if times:
                found.setdefault((run.arm, law), []).append(times)
    return tuple(
        BrokenLaw(arm=arm, law=law, times=sum(times), runs=len(times))
        for (arm, law), times in found.items()
    )
