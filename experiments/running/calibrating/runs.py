"""What the ways to calibrate share: limits, and a run repeated until one counts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from experiments.running.progress import Watcher
from experiments.running.trials import attempts_file
from experiments.worlds.world import RunFiles, RunResult, Trial, WorldError

CONFIDENCE: Final = 0.95
# Neither late requests nor a CPU that others had change what requests cost.
UNDISTURBED: Final = {"lateness_p99_ms": 1e6, "broker_wait_share": 1e6}
_ATTEMPTS: Final = 3


@contextmanager
def run_that_counts(
    trial: Trial, replay: Callable[[RunFiles], RunResult], watcher: Watcher
) -> Iterator[tuple[RunResult, RunFiles]]:
    """Yield a run that counts, and its files, which are gone afterwards.

    :raises WorldError: if none of three does.
    """
    watcher.started(trial)
    with tempfile.TemporaryDirectory(prefix="doorkeeper-calibrate-") as scratch:
        files = RunFiles(
            requests=Path(scratch, "requests.parquet"),
            samples=Path(scratch, "samples.parquet"),
            attempts=attempts_file(trial, Path(scratch)),
        )
        for _ in range(_ATTEMPTS):
            result = replay(files)
            watcher.ended(trial, result)
            if result.valid:
                yield result, files
                return
    raise WorldError(f"calibration: {_ATTEMPTS} runs did not count: {result.reason}")
