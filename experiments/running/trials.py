"""One trial as a unit of work: a value in, bytes out, on any machine.

A trial draws its own trace from the seed, so only a few kilobytes are sent to the
process or machine that runs it. It returns the contents of its files, and the process
with the directory writes them. Trials can therefore run anywhere, by the same function,
with equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from experiments.design.capacity import machine_us, nominal_us, read_ns
from experiments.design.config import Experiment
from experiments.load import trace
from experiments.load.trace import Trace
from experiments.records.recording import identity_fault
from experiments.worlds.world import MachineTrial, RunResult, Trial, WorldError


class TrialFailed(Exception):
    """A trial raised: the code is at fault, or the machine cannot run trials."""


class KeyedTrial(NamedTuple):
    """A trial, and the hash of all inputs of its rows."""

    trial: Trial
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Trials that run together, by rounds: a session, a block, or one trial.

    ``with_trace`` are the stems of the trials that return their trace.
    """

    rounds: tuple[tuple[Trial, ...], ...]
    with_trace: frozenset[str] = frozenset()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Return all trials in their order."""
        return tuple(trial for round_ in self.rounds for trial in round_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished run: its result, and the contents of its files, if it has any.

    Rows are the bytes of a file, or a table if they never left this process. ``trace``
    is the content of the trace's file, if requested. ``trace_sha256`` and
    ``trace_requests`` describe the trace drawn here.
    """

    trial: Trial
    result: RunResult
    requests: bytes | pa.Table | None
    samples: bytes | pa.Table | None
    attempts: bytes | None = None
    trace: bytes | None
    trace_sha256: str
    trace_requests: int
    started: str
    seconds: float
    load_average: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A trial that raised, as text that can be sent to another process.

    ``ours`` is true if the code is at fault.
    """

    message: str
    ours: bool


# The answer of a process that ran work.
Answer: TypeAlias = tuple[Outcome, ...] | Failure


def expect(found: Answer) -> tuple[Outcome, ...]:
    """Return the outcomes.

    :raises TrialFailed: if a trial raised.
    :raises WorldError: if no trial can run there.
    """
    if not isinstance(found, Failure):
        return found
    raise TrialFailed(found.message) if found.ours else WorldError(found.message)


class TraceCache:
    """Draws traces; consecutive arms of a block share one."""

    def __init__(self) -> None:
        self._drawing = ""
        self._trace: Trace | None = None

    def draw(self, trial: Trial) -> Trace:
        """Return the trace of a trial's block."""
        drawing = drawing_key(trial.experiment, trial.block)
        if self._trace is None or drawing != self._drawing:
            self._trace = trace.generate(trial.experiment, trial.block)
            self._drawing = drawing
        return self._trace


def trial_key(trial: Trial, world: str, code: str) -> str:
    """Return the hash of all inputs of a trial's rows.

    It does not depend on the name of the point, on other points and arms, on the number
    of retries, or on the analysis.
    """
    limits = trial.experiment.limits.model_dump(mode="json")
    del limits["retries"]
    depends_on = {
        "trace": _drawn_from(trial.experiment, trial.block),
        "arm": trial.arm.name,
        "keys": trial.experiment.broker_keys(trial.arm),
        "limits": limits,
        "told": _settings_of(trial, world),
        "cluster": _cluster(trial),
        "stretch": trial.point.stretch,
        "costs": machine_us(trial.experiment),
        "world": world,
        "block": trial.block,
        "session": trial.session,
        "code": code,
        "python": platform.python_version(),
    }
    return _hash(depends_on)


def drawing_key(experiment: Experiment, block: int) -> str:
    """Return the hash of all inputs of a trace except the code."""
    return _hash(_drawn_from(experiment, block))


def _settings_of(trial: Trial, world: str) -> dict[str, Any]:
    """Return the settings that only this world uses."""
    if world == "virtual":
        virtual = trial.experiment.virtual.model_dump(mode="json")
        return {**virtual, "read_ns": read_ns(trial.experiment)}
    if world == "model":
        settings = trial.arm.model.settings(trial.experiment.model)
        return {**settings.model_dump(mode="json"), "own": trial.arm.model.own}
    # The processes of a session have run earlier rounds.
    processes: dict[str, Any] = {"shared": trial.experiment.sessions is not None}
    if world == "live":
        processes["live"] = trial.experiment.live.model_dump(mode="json")
    else:
        processes["kafka"] = trial.experiment.kafka.model_dump(mode="json")
        processes["queue"] = trial.arm.kafka.queue
    return processes


def attempts_file(trial: Trial, at: Path) -> Path | None:
    """Return the path of a cluster run's attempts."""
    return None if trial.experiment.cluster is None else at / "attempts.parquet"


def _cluster(trial: Trial) -> dict[str, Any] | None:
    """Return a cluster's part of a trial's key."""
    cluster = trial.experiment.cluster
    if cluster is None:
        return None
    return {**cluster.model_dump(mode="json"), "controller": trial.arm.controller}


def _drawn_from(experiment: Experiment, block: int) -> dict[str, Any]:
    """Return the inputs of a trace, without the bounds of the analysis.

    A file of requests is identified by its hash, not by its path.
    """
    workload = experiment.workload.model_dump(mode="json", by_alias=True)
    del workload["warmup_s"], workload["trace"]
    for entry in workload["traffic"]:
        del entry["slo_ms"]
    return {
        "workload": workload,
        "faults": [fault.model_dump(mode="json") for fault in experiment.faults],
        "seed": experiment.experiment.seed,
        "block": block,
    }


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def on_its_machine(trial: Trial, drawn: Trace) -> tuple[MachineTrial, Trace]:
    """Return a trial and its trace in the machine's time, for a world to run."""
    experiment = trial.experiment
    nominal = nominal_us(experiment)
    ratios = {
        name: cost_us / nominal[name]
        for name, cost_us in machine_us(experiment).items()
        if name in nominal
    }
    return trial.on_machine(), drawn.stretched(trial.point.stretch, ratios)


def stored(drawn: Trace) -> bytes:
    """Return the content of a trace's file."""
    with tempfile.TemporaryDirectory(prefix="doorkeeper-trace-") as scratch:
        path = Path(scratch, "trace.parquet")
        trace.store(drawn, path)
        return path.read_bytes()


def checked(result: RunResult, replayed: Trace) -> RunResult:
    """Check a result against its trace: equal hash, and a row for every request."""
    if not result.valid:
        return result
    fault = identity_fault(result.counts, len(replayed))
    if result.trace_sha256 != replayed.sha256:
        fault = f"replayed the trace {result.trace_sha256}, not {replayed.sha256}"
    return replace(result, valid=not fault, reason=fault)
