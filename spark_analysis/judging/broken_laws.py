"""Laws that a scheduler broke while it ran, as its broker counted them.

A law that is broken on purpose (strict priority starves) is no fault of the recording;
the reader must know it when the latencies look good.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_analysis.recordings.contract import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLaw:
    """Number of times that an arm broke a law, and of its compared runs."""

    arm: str
    law: str
    times: int
    runs: int


def broken_laws(manifest: Manifest) -> tuple[BrokenLaw, ...]:
    """Return one entry per arm and law that it broke in a run that is compared."""
    found: dict[tuple[str, str], list[int]] = {}
    for run in manifest.runs_compared:
        for law, times in run.violations.items():
            if times:
                found.setdefault((run.arm, law), []).append(times)
    return tuple(
        BrokenLaw(arm=arm, law=law, times=sum(times), runs=len(times))
        for (arm, law), times in found.items()
    )
