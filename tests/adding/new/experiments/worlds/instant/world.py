"""The instant world: every request is answered at the time of its send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from broker.observation.recording.recording import MEASURES, SampleRow
from experiments.design.config import Experiment
from experiments.load.trace import Trace
from experiments.records import recording
from experiments.records.recording import STAMPS, Results
from experiments.worlds.world import RunFiles, RunResult, Trial


def make(tick: Callable[[], None]) -> Instant:
    """Return this world."""
    return Instant(tick)


class Instant:
    """Answers immediately; ``tick`` is called once per run."""

    name = "instant"

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick

    def environment(self) -> Mapping[str, Any]:
        """Return an empty mapping."""
        return {}

    def estimate_s(self, experiment: Experiment) -> float:
        """Return zero."""
        return 0.0

    def run(self, trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        """Write a row for each request."""
        self._tick()
        limits, labels = trial.experiment.limits, trial.labels(self.name)
        intended_ns = trace.table["intended_ns"].to_numpy()
        zeros = dict.fromkeys(MEASURES, np.zeros(len(trace), np.int64))
        results = Results(
            columns=dict.fromkeys(STAMPS, intended_ns) | zeros,
            error_code=np.zeros(len(trace), np.int16),
            ended_ns=round(trial.experiment.workload.duration_s * 1e9),
        )
        timeout_ns = round(limits.timeout_ms * 1e6)
        rows = recording.requests_table(labels, trace, results, timeout_ns)
        recording.write(rows, out.requests)
        nothing: dict[str, list[Any]] = {name: [] for name in SampleRow._fields}
        recording.write(recording.samples_table(labels, nothing), out.samples)
        return RunResult(
            valid=True,
            trace_sha256=trace.sha256,
            counts=recording.counts(rows, len(trace)),
        )
